//! What the user should know: why nothing is drafted, what does not work as its name says.
//!
//! Invariant: each thing is told once, when it comes to hold, and before the round that it concerns.

use super::{Decoder, Emit, NoDrafter};
use crate::protocol::{EventKind, Settings, VerifyRule};
use crate::speculate::report::{Stopwatch, drafter_failed};

/// When something holds, and what to say of it.
type Warning = (fn(&Settings) -> bool, &'static str);

/// What does not work as its name says.
const WARNINGS: &[Warning] = &[
    (
        |s| s.drafting.tree == Some(0) && s.draft_len > 0,
        "the draft tree's budget is 0 nodes, so nothing is drafted: plain decoding goes on",
    ),
    (
        |s| s.rule == VerifyRule::Block && s.drafting.tree.is_some_and(|nodes| nodes > 0) && !s.sampling.is_greedy(),
        "block verification judges chains: drafts of a tree are judged by rejection in its place, lossless too",
    ),
];

impl Decoder {
    pub(super) fn configure(&mut self, before: Option<&Settings>) {
        self.refuse_trees();
        self.drafter.configure(&self.settings);
        if let Err(error) = self.connect_hidden_states() {
            self.dismiss(&error);
        }
        self.hear_drafter();
        for (holds, message) in WARNINGS {
            if holds(&self.settings) && !before.is_some_and(holds) {
                self.notices.push((*message).to_owned());
            }
        }
    }

    pub(super) fn dismiss(&mut self, error: &dyn std::fmt::Display) {
        self.drafter = Box::new(NoDrafter);
        self.notices.push(drafter_failed(error));
    }

    /// What the user should know and has not been told: why the drafter is not there, say.
    pub fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    pub(super) fn hear_drafter(&mut self) {
        self.notices.extend(std::iter::from_fn(|| self.drafter.notice()));
    }

    pub(super) fn report_notices(&mut self, watch: &mut Stopwatch, emit: &mut Emit<'_>) {
        for message in self.notices.drain(..) {
            watch.held(emit(EventKind::Notice { message }));
        }
    }

    /// Says, once a turn, that drafts get shorter because the context ends.
    pub(super) fn notice_shortness(&mut self, wanted: usize, room: usize) {
        if wanted > room && self.settings.probe_depth == 0 && !std::mem::replace(&mut self.told_short, true) {
            let end = self.target.spec().ctx_len;
            let left = if room == 0 { "no draft".to_owned() } else { format!("drafts of {room}, not of {wanted}") };
            let message =
                format!("the context of {end} tokens is nearly full: it has room for {left}, and less from here on");
            self.notices.push(message);
        }
    }
}
