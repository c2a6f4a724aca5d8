//! The way out: numbers events, stamps them and fills in what tokens look like.
//!
//! Waking a listener costs the engine's thread some twenty microseconds and takes a core from its kernels, several times
//! in a round of three milliseconds. So what a short round says is handed over together, at its end. Invariant: events
//! leave in `seq` order, and nothing is kept back while the engine waits or works for long.

use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc::UnboundedSender;

use crate::model::text::tokenizer::TextCodec;
use crate::protocol::{Event, EventKind, Lane, Piece, Prediction};

/// A round that takes longer is told phase by phase.
const HOLD: Duration = Duration::from_millis(8);

/// Sends events in `seq` order. A listener that is gone is no error: the next poll of the commands
/// ends the run.
pub(super) struct Outbox {
    sender: UnboundedSender<Event>,
    held: Vec<Event>,
    handed_over: Instant,
    /// When the last round ended, and whether it was a short one; none outside of answers.
    last_round: Option<(Instant, bool)>,
    seq: u64,
    started: Instant,
    started_unix_ms: u64,
    codec: Option<Rc<TextCodec>>,
}

impl Outbox {
    pub(super) fn new(sender: UnboundedSender<Event>) -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            sender,
            held: Vec::new(),
            handed_over: Instant::now(),
            last_round: None,
            seq: 0,
            started: Instant::now(),
            started_unix_ms: u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX),
            codec: None,
        }
    }

    /// From here on pieces get their bytes.
    pub(super) fn know(&mut self, codec: Rc<TextCodec>) {
        self.codec = Some(codec);
    }

    pub(super) fn started_unix_ms(&self) -> u64 {
        self.started_unix_ms
    }

    pub(super) fn send(&mut self, lane: Lane, mut kind: EventKind) {
        if let Some(codec) = &self.codec {
            spell(&mut kind, codec);
        }
        let now = Instant::now();
        let at_us = u64::try_from((now - self.started).as_micros()).unwrap_or(u64::MAX);
        let may_wait = self.may_wait(&kind, now);
        self.held.push(Event { seq: self.seq, at_us, lane, kind });
        self.seq += 1;
        if !may_wait {
            self.flush();
        }
    }

    /// Hands over what was kept back: before the engine waits for somebody.
    pub(super) fn flush(&mut self) {
        for event in self.held.drain(..) {
            let _ = self.sender.send(event);
        }
        self.handed_over = Instant::now();
    }

    /// Whether an event can be kept back: one within a round, where the last one was short.
    fn may_wait(&mut self, kind: &EventKind, now: Instant) -> bool {
        match kind {
            EventKind::RoundStarted { .. }
            | EventKind::Probed { .. }
            | EventKind::Drafted { .. }
            | EventKind::DraftStopped { .. }
            | EventKind::Scored { .. }
            | EventKind::Verified { .. } => {
                self.last_round.is_some_and(|(_, is_short)| is_short) && now - self.handed_over < HOLD
            }
            EventKind::Committed { .. } => {
                let is_short = self.last_round.is_some_and(|(ended, _)| now - ended < HOLD);
                self.last_round = Some((now, is_short));
                false
            }
            _ => {
                self.last_round = None;
                false
            }
        }
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Fills in the bytes of every token of an event.
fn spell(kind: &mut EventKind, codec: &TextCodec) {
    let piece = |piece: &mut Piece| *piece = codec.piece(piece.id);
    let row = |row: &mut Prediction| row.top.iter_mut().for_each(|c| c.piece = codec.piece(c.piece.id));
    match kind {
        EventKind::Prefilled { prompt, first, row: predicted, .. } => {
            prompt.iter_mut().for_each(piece);
            piece(first);
            row(predicted);
        }
        EventKind::Drafted { token, top, .. } => {
            piece(token);
            row(top);
        }
        EventKind::Probed { drafts, .. } => {
            for draft in drafts {
                piece(&mut draft.token);
                row(&mut draft.top);
            }
        }
        EventKind::DraftStopped { token, .. } => piece(token),
        EventKind::Scored { rows, .. } => rows.iter_mut().for_each(row),
        EventKind::Committed { tokens, .. } => tokens.iter_mut().for_each(piece),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::protocol::StopReason;

    fn started(round: u32) -> EventKind {
        EventKind::RoundStarted { round, base_len: 0, draft_len: 0 }
    }

    fn committed(round: u32) -> EventKind {
        EventKind::Committed { round, tokens: Vec::new(), rollback_us: 0, clock_us: 0 }
    }

    #[test]
    fn a_short_round_is_handed_over_at_its_end_and_a_long_one_phase_by_phase() {
        let (sender, _receiver) = unbounded_channel();
        let mut outbox = Outbox::new(sender);
        let start = outbox.handed_over;
        let mut may_wait = |kind: &EventKind, at: Duration| outbox.may_wait(kind, start + at);
        let ms = Duration::from_millis;
        assert!(!may_wait(&started(1), ms(0)), "nothing is known of rounds yet");
        assert!(!may_wait(&committed(1), ms(1)));
        assert!(!may_wait(&started(2), ms(1)));
        assert!(!may_wait(&committed(2), ms(2)), "the end of a round never waits");
        assert!(may_wait(&started(3), ms(3)), "the last round was short");
        assert!(!may_wait(&started(3), HOLD), "it has been long since something was handed over");
        assert!(!may_wait(&committed(3), ms(2) + HOLD));
        assert!(!may_wait(&started(4), ms(2)), "the last round was a long one");
        assert!(!may_wait(&committed(4), ms(3) + HOLD));
        assert!(may_wait(&started(5), ms(3)));
        assert!(!may_wait(&EventKind::Finished { reason: StopReason::Eos }, ms(4)), "the answer ends");
        assert!(!may_wait(&started(6), ms(4)));
    }

    #[test]
    fn all_events_leave_in_order_whatever_was_kept_back() {
        let (sender, mut receiver) = unbounded_channel();
        let mut outbox = Outbox::new(sender);
        for round in 0..40 {
            outbox.send(Lane::Speculative, started(round));
            outbox.send(Lane::Speculative, committed(round));
        }
        drop(outbox);
        for seq in 0..80 {
            assert_eq!(receiver.try_recv().unwrap().seq, seq);
        }
        assert!(receiver.try_recv().is_err());
    }
}
