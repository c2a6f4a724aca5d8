//! The probe run: records the drafter's proposals at every position.
//!
//! Invariant: the drafter has the same inputs as in a speculative round at this position. The target does not verify
//! the chain (or the tree): the round continues as plain decoding.

use super::{Decoder, Emit};
use crate::speculate::report::{Stopwatch, bare, prediction};
use draftscope_protocol::verify::Draft;
use draftscope_protocol::{EventKind, Probed, ProbedDraft};

impl Decoder {
    /// In a probe run, drafts a chain or a tree that fits into the cache and reports it.
    pub(super) fn probe(&mut self, room: usize, watch: &mut Stopwatch, emit: &mut Emit<'_>) {
        let depth = usize::from(self.settings.probe_depth).min(room);
        if self.settings.probe_depth == 0 {
            return;
        }
        watch.lap();
        let limit = self.limit(depth, room);
        let drafts = self.ask(depth, limit, &mut |_, _| {}).drafts;
        let drafts = drafts.iter().map(probed).collect();
        let took_us = watch.lap();
        watch.exclude(emit(EventKind::Probed(Probed { round: self.round, drafts, took_us })));
    }
}

fn probed(draft: &Draft) -> ProbedDraft {
    let top = draft.q.as_ref().map(prediction).unwrap_or_default();
    let row = draft.row.map(|row| row as u8); // fewer than MAX_TREE_ROWS
    ProbedDraft { token: bare(draft.token), q: draft.confidence(), top, row }
}
