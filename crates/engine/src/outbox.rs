//! The engine's output: numbers events, stamps them and fills in the bytes of tokens.
//!
//! Waking a listener costs the engine's thread some 20 µs and takes a core from its kernels, several times in a round
//! of 3 ms. So the events of a short round are sent together, at its end. Invariant: events leave in `seq` order, and
//! none is kept back while the engine waits or computes for long.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc::UnboundedSender;

use draftscope_model::text::tokenizer::TextCodec;
use draftscope_protocol::{
    Committed, DraftRefused, DraftStopped, Drafted, Event, EventKind, Lane, Lattice, Piece, Prediction, Prefilled,
    Probed, Scored,
};

/// Longest duration of a short round. The events of a longer one are sent phase by phase.
const SHORT_ROUND: Duration = Duration::from_millis(8);

/// Sends events in `seq` order. If the listener is gone, the next poll of the commands ends the run.
pub(super) struct Outbox {
    sender: UnboundedSender<Event>,
    pending: Vec<Event>,
    flushed_at: Instant,
    /// When the last round ended, and whether it was a short one; none outside of answers.
    last_round: Option<(Instant, bool)>,
    seq: u64,
    started: Instant,
    started_unix_ms: u64,
    codec: Option<Arc<TextCodec>>,
}

impl Outbox {
    pub(super) fn new(sender: UnboundedSender<Event>) -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            sender,
            pending: Vec::new(),
            flushed_at: Instant::now(),
            last_round: None,
            seq: 0,
            started: Instant::now(),
            started_unix_ms: u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX),
            codec: None,
        }
    }

    /// Sets the codec that fills in the bytes of tokens from now on.
    pub(super) fn set_codec(&mut self, codec: Arc<TextCodec>) {
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
        self.pending.push(Event { seq: self.seq, at_us, lane, kind });
        self.seq += 1;
        if !may_wait {
            self.flush();
        }
    }

    /// Sends all pending events; called before the engine waits.
    pub(super) fn flush(&mut self) {
        for event in self.pending.drain(..) {
            let _ = self.sender.send(event);
        }
        self.flushed_at = Instant::now();
    }

    /// Whether an event can wait for the next flush: one within a round, if the previous round was short.
    fn may_wait(&mut self, kind: &EventKind, now: Instant) -> bool {
        match kind {
            EventKind::RoundStarted(_)
            | EventKind::Probed(_)
            | EventKind::Drafted(_)
            | EventKind::DraftStopped(_)
            | EventKind::Lattice(_)
            | EventKind::Alternatives(_)
            | EventKind::Scored(_)
            | EventKind::Verified { .. } => {
                self.last_round.is_some_and(|(_, is_short)| is_short) && now - self.flushed_at < SHORT_ROUND
            }
            EventKind::Committed(_) => {
                let is_short = self.last_round.is_some_and(|(ended, _)| now - ended < SHORT_ROUND);
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
        EventKind::Prefilled(Prefilled { prompt, first, row: predicted, .. }) => {
            prompt.iter_mut().for_each(piece);
            piece(first);
            row(predicted);
        }
        EventKind::Drafted(Drafted { token, top, .. }) => {
            piece(token);
            row(top);
        }
        EventKind::Probed(Probed { drafts, .. }) => {
            for draft in drafts {
                piece(&mut draft.token);
                row(&mut draft.top);
            }
        }
        EventKind::DraftStopped(DraftStopped { token, .. }) | EventKind::DraftRefused(DraftRefused { token, .. }) => {
            piece(token);
        }
        EventKind::Lattice(Lattice { columns, .. }) => {
            columns
                .iter_mut()
                .flat_map(|column| &mut column.candidates)
                .for_each(|candidate| piece(&mut candidate.token));
        }
        EventKind::Scored(Scored { rows, .. }) => rows.iter_mut().for_each(row),
        EventKind::Committed(Committed { tokens, .. }) => tokens.iter_mut().for_each(piece),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use draftscope_protocol::{RoundStarted, StopReason};

    fn started(round: u32) -> EventKind {
        EventKind::RoundStarted(RoundStarted { round, ..RoundStarted::default() })
    }

    fn committed(round: u32) -> EventKind {
        EventKind::Committed(Committed { round, ..Committed::default() })
    }

    #[test]
    fn a_short_round_is_sent_at_its_end_and_a_long_one_phase_by_phase() {
        let (sender, _receiver) = unbounded_channel();
        let mut outbox = Outbox::new(sender);
        let start = outbox.flushed_at;
        let mut may_wait = |kind: &EventKind, at: Duration| outbox.may_wait(kind, start + at);
        let ms = Duration::from_millis;
        assert!(!may_wait(&started(1), ms(0)), "no round has ended yet");
        assert!(!may_wait(&committed(1), ms(1)));
        assert!(!may_wait(&started(2), ms(1)));
        assert!(!may_wait(&committed(2), ms(2)), "the end of a round never waits");
        assert!(may_wait(&started(3), ms(3)), "the last round was short");
        assert!(!may_wait(&started(3), SHORT_ROUND), "the last flush was long ago");
        assert!(!may_wait(&committed(3), ms(2) + SHORT_ROUND));
        assert!(!may_wait(&started(4), ms(2)), "the last round was a long one");
        assert!(!may_wait(&committed(4), ms(3) + SHORT_ROUND));
        assert!(may_wait(&started(5), ms(3)));
        assert!(!may_wait(&EventKind::Finished { reason: StopReason::Eos }, ms(4)), "the answer ends");
        assert!(!may_wait(&started(6), ms(4)));
    }

    #[test]
    fn all_events_leave_in_order_pending_ones_included() {
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
