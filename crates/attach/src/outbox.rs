//! Numbers and stamps events.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc::UnboundedSender;

use draftscope_protocol::{Event, EventKind, Lane};

/// Sends events in `seq` order.
pub(super) struct Outbox {
    sender: UnboundedSender<Event>,
    seq: u64,
    started: Instant,
    pub(super) started_unix_ms: u64,
}

impl Outbox {
    pub(super) fn new(sender: UnboundedSender<Event>) -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started_unix_ms = u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX);
        Self { sender, seq: 0, started: Instant::now(), started_unix_ms }
    }

    pub(super) fn send(&mut self, kind: EventKind) {
        self.send_in(Lane::Speculative, kind);
    }

    pub(super) fn send_in(&mut self, lane: Lane, kind: EventKind) {
        let at_us = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        // without a listener the next poll of the commands ends the run
        let _ = self.sender.send(Event { seq: self.seq, at_us, lane, kind });
        self.seq += 1;
    }

    pub(super) fn notice(&mut self, message: impl Into<String>) {
        self.send(EventKind::Notice { message: message.into() });
    }
}
