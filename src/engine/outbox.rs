//! The way out: numbers events, stamps them and fills in what tokens look like.

use std::rc::Rc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc::UnboundedSender;

use crate::model::tokenizer::TextCodec;
use crate::protocol::{Event, EventKind, Lane, Piece, Prediction};

/// Sends events in `seq` order. A listener that is gone is no error: the next poll of the commands
/// ends the run.
pub(super) struct Outbox {
    sender: UnboundedSender<Event>,
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
        let at_us = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let _ = self.sender.send(Event { seq: self.seq, at_us, lane, kind });
        self.seq += 1;
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
