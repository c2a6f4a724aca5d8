//! Notices to the user: why nothing is drafted, and which settings do not have their usual effect.
//!
//! Invariant: each notice is sent once, when its condition becomes true, and before the round that it concerns.

use super::{Decoder, Emit, NoDrafter};
use crate::speculate::report::{Stopwatch, drafter_failed};
use draftscope_protocol::{EventKind, Settings, VerifyRule};

/// A condition, and the notice when it becomes true.
type Warning = (fn(&Settings) -> bool, &'static str);

/// Settings that do not have their usual effect.
const WARNINGS: &[Warning] = &[
    (
        |s| s.drafting.tree == Some(0) && s.draft_len > 0,
        "the draft tree has a budget of 0 nodes, so decoding continues without drafts",
    ),
    (
        |s| s.rule == VerifyRule::Block && s.drafting.tree.is_some_and(|nodes| nodes > 0) && !s.sampling.is_greedy(),
        "block verification judges only chains: the drafts of a tree are judged by rejection, which is lossless, too",
    ),
];

impl Decoder {
    pub(super) fn configure(&mut self, before: Option<&Settings>) {
        self.refuse_trees();
        if before.map_or(0, |before| before.threads) != self.settings.threads {
            self.limit_threads();
        }
        self.drafter.configure(&self.settings);
        if let Err(error) = self.connect_hidden_states() {
            self.dismiss(&error);
        }
        self.collect_notices();
        for (applies, message) in WARNINGS {
            if applies(&self.settings) && !before.is_some_and(applies) {
                self.notices.push((*message).to_owned());
            }
        }
    }

    /// Lets passes run on as many threads as the settings say.
    fn limit_threads(&mut self) {
        let most = match self.settings.threads {
            0 => usize::MAX,
            threads => threads.into(),
        };
        let threads = self.target.limit_threads(most);
        if threads > most {
            self.notices.push(format!("this backend computes on {threads} threads; it cannot leave some of them out"));
        }
    }

    pub(super) fn dismiss(&mut self, error: &dyn std::fmt::Display) {
        self.drafter = Box::new(NoDrafter);
        self.notices.push(drafter_failed(error));
    }

    /// Takes the notices that were not sent yet, for example why the drafter is missing.
    pub fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    pub(super) fn collect_notices(&mut self) {
        self.notices.extend(std::iter::from_fn(|| self.drafter.notice()));
    }

    pub(super) fn emit_notices(&mut self, watch: &mut Stopwatch, emit: &mut Emit<'_>) {
        for message in self.notices.drain(..) {
            watch.exclude(emit(EventKind::Notice { message }));
        }
    }

    /// Adds a notice, once per turn, that drafts get shorter because the context is nearly full.
    pub(super) fn note_short_context(&mut self, wanted: usize, room: usize) {
        if wanted > room && self.settings.probe_depth == 0 && !std::mem::replace(&mut self.reported_short, true) {
            let end = self.target.spec().ctx_len;
            let left = if room == 0 { "no draft".to_owned() } else { format!("drafts of {room}, not {wanted}") };
            let message =
                format!("the context of {end} tokens is nearly full, so drafts get shorter: there is room for {left}");
            self.notices.push(message);
        }
    }
}
