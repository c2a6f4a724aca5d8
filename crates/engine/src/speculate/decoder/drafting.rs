//! The drafts of a round: what the grammar forces, what the drafter proposes, and alternatives to it.

use super::{Decoder, Emit, round_ctx};
use crate::speculate::drafter::{Asked, Constrained, DraftCtx, Limits, alternatives};
use crate::speculate::report::{Stopwatch, drafted};
use draftscope_model::MAX_TREE_ROWS;
use draftscope_protocol::policy::DraftProgress;
use draftscope_protocol::verify::Draft;
use draftscope_protocol::{
    Alternatives, DraftRefused, DraftStopped, DrafterKind, EventKind, Lattice, MAX_DRAFT_LEN, NodeWorth, VerifyRule,
};

impl Decoder {
    /// Asks the drafter for drafts. If it fails, a notice says so and no drafter replaces it.
    pub(super) fn draft(
        &mut self,
        draft_len: usize,
        room: usize,
        watch: &mut Stopwatch,
        emit: &mut Emit<'_>,
    ) -> Vec<Draft> {
        let round = self.round;
        let limit = self.limit(draft_len, room);
        watch.lap();
        let mut asked = self.ask(draft_len, limit, &mut |index: usize, draft: &Draft| {
            let took_us = watch.lap();
            watch.exclude(emit(drafted(round, index, draft, took_us)));
        });
        if let Some(stopped) = asked.stopped.clone() {
            let (index, took_us) = (asked.drafts.len() as u8, watch.lap());
            watch.exclude(emit(EventKind::DraftStopped(DraftStopped { round, index, took_us, ..stopped })));
        }
        if !asked.lattice.is_empty() {
            watch.exclude(emit(EventKind::Lattice(Lattice { round, columns: std::mem::take(&mut asked.lattice) })));
        }
        for refusal in std::mem::take(&mut asked.refused) {
            watch.exclude(emit(EventKind::DraftRefused(DraftRefused { round, ..refusal })));
        }
        let mut worths = Vec::new();
        for (draft, worth) in self.alternatives(&asked, draft_len, room) {
            let took_us = watch.lap();
            watch.exclude(emit(drafted(round, asked.drafts.len(), &draft, took_us)));
            asked.drafts.push(draft);
            worths.push(worth);
        }
        if !worths.is_empty() {
            watch.exclude(emit(EventKind::Alternatives(Alternatives { round, worths })));
        }
        asked.drafts
    }

    /// Alternatives to these drafts that are worth their rows, if the engine chooses what is drafted. Only lossless rules
    /// that judge one row at a time get them: what the others accept does not follow from the drafter's probabilities.
    fn alternatives(&self, asked: &Asked, draft_len: usize, room: usize) -> Vec<(Draft, NodeWorth)> {
        let is_judged = matches!(self.settings.rule, VerifyRule::Exact | VerifyRule::Rejection);
        if !is_judged || self.drafts_trees() || self.target.refuses_trees().is_some() {
            return Vec::new();
        }
        let most = room.min(MAX_TREE_ROWS - 1).min(MAX_DRAFT_LEN.into());
        let limits = Limits { most, vocab: self.target.spec().info.vocab };
        alternatives(asked, (&self.round_ctx(draft_len), &self.settings.drafting), limits)
    }

    /// Most drafts of a round: a chain's k, or the nodes of a tree.
    pub(super) fn limit(&self, draft_len: usize, room: usize) -> usize {
        match self.settings.drafting.tree {
            Some(nodes) if draft_len > 0 => usize::from(nodes).min(room).min(MAX_TREE_ROWS - 1),
            _ => draft_len,
        }
    }

    /// Asks the drafter for a chain of `draft_len` drafts or a tree of `limit` nodes and that depth.
    pub(super) fn ask(&mut self, draft_len: usize, limit: usize, on_draft: &mut dyn FnMut(usize, &Draft)) -> Asked {
        let at = (self.committed.len(), draft_len);
        let most_copied = self.room().min(MAX_DRAFT_LEN.into());
        let round_ctx = round_ctx(&self.settings, self.shapes_drafts, &self.draws, at);
        let mut ctx = DraftCtx {
            round: round_ctx,
            drafting: self.settings.drafting,
            committed: &self.committed,
            sampler: &self.sampler,
            target: self.target.as_mut(),
            on_draft,
            limit,
            most_copied,
            copier: None,
            progress: self.stop_rule.clone().filter(|_| self.settings.drafting.tree.is_none()).map(DraftProgress::new),
            drafts: Vec::new(),
            stopped: None,
            passed_over: Vec::new(),
            lattice: Vec::new(),
            constrained: self.grammar.as_mut().map(|grammar| Constrained {
                grammar,
                from: self.answer_from,
                forces: !matches!(self.settings.drafter, DrafterKind::Human | DrafterKind::None),
                refused: Vec::new(),
            }),
        };
        let result = if limit > 0 && !ctx.begin_forced() { Ok(()) } else { self.drafter.draft(&mut ctx) };
        let DraftCtx { drafts, stopped, progress, passed_over, lattice, constrained, .. } = ctx;
        let refused = constrained.map(|constrained| constrained.refused).unwrap_or_default();
        let asked = Asked { drafts, stopped, progress, passed_over, lattice, refused };
        if let Err(error) = result {
            self.dismiss(&error);
        }
        self.collect_notices();
        asked
    }
}
