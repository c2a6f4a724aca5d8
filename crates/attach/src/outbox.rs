//! Numbers and stamps events.
//!
//! Invariant: no event contains a secret that a server of the run was sent: text of servers and plugins is masked.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc::UnboundedSender;

use draftscope_http::Secrets;
use draftscope_protocol::{Event, EventKind, Header, Lane, Piece, Prefilled, Private};

use super::spread::mask_tokens;

/// Sends events in `seq` order.
pub(super) struct Outbox {
    sender: UnboundedSender<Event>,
    seq: u64,
    started: Instant,
    pub(super) started_unix_ms: u64,
    secrets: Arc<Secrets>,
}

impl Outbox {
    pub(super) fn new(sender: UnboundedSender<Event>) -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started_unix_ms = u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX);
        Self { sender, seq: 0, started: Instant::now(), started_unix_ms, secrets: Arc::default() }
    }

    /// From now on no event names these.
    pub(super) fn hide(&mut self, secrets: Secrets) {
        self.secrets = Arc::new(secrets);
    }

    /// What no event names.
    pub(super) fn secrets(&self) -> &Arc<Secrets> {
        &self.secrets
    }

    pub(super) fn send(&mut self, kind: EventKind) {
        self.send_in(Lane::Speculative, kind);
    }

    pub(super) fn send_in(&mut self, lane: Lane, mut kind: EventKind) {
        mask(&self.secrets, &mut kind);
        let at_us = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        // without a listener the next poll of the commands ends the run
        let _ = self.sender.send(Event { seq: self.seq, at_us, lane, kind });
        self.seq += 1;
    }

    pub(super) fn notice(&mut self, message: impl Into<String>) {
        self.send(EventKind::Notice { message: message.into() });
    }
}

/// Masks secrets in all text of an event that does not come from the user.
fn mask(secrets: &Secrets, kind: &mut EventKind) {
    match kind {
        EventKind::Notice { message } | EventKind::Failed { message } => mask_text(secrets, message),
        EventKind::Started { header } => texts(header).for_each(|text| mask_text(secrets, text)),
        EventKind::Prefilled(Prefilled { prompt, .. }) => mask_tokens(secrets, prompt),
        _ => {}
    }
    kind.each_private(&mut |part| match part {
        Private::Token(piece) => mask_piece(secrets, piece),
        Private::Typed(_) | Private::Id(_) => {}
    });
}

fn mask_text(secrets: &Secrets, text: &mut String) {
    *text = secrets.mask(std::mem::take(text));
}

/// A token by itself, which may be a candidate or the name of a control token.
fn mask_piece(secrets: &Secrets, piece: &mut Piece) {
    let text = piece.lossy();
    if !secrets.find(&text).is_empty() {
        piece.bytes = secrets.mask(text.into_owned()).into();
    }
}

/// The texts of a header that servers write.
fn texts(header: &mut Header) -> impl Iterator<Item = &mut String> {
    let model = &mut header.model;
    let of_model = [&mut model.name, &mut model.architecture, &mut model.file].into_iter().chain(&mut model.own_name);
    let drafters = header.drafter.iter_mut().chain(&mut header.drafters);
    let of_engine = header
        .engine
        .iter_mut()
        .flat_map(|engine| [&mut engine.name, &mut engine.version].into_iter().chain(&mut engine.no_speedup));
    let of_drafters = drafters.flat_map(|drafter| [&mut drafter.name, &mut drafter.dtype]);
    of_model.chain(of_drafters).chain(of_engine).chain([&mut header.dtype])
}
