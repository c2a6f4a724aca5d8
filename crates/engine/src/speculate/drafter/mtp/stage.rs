//! One module of a stack, and where its slots begin.

use crate::speculate::drafter::DraftCtx;
use draftscope_model::{DraftModule, LogitRows, ModelError, Rows};
use draftscope_protocol::{MtpSpec, Pairing, SlotZero, TokenId};

/// A module and its outputs for the settled slots.
pub(super) struct Stage {
    pub(super) module: Box<dyn DraftModule>,
    /// One row per settled slot, stored only if a deeper module reads them.
    pub(super) outputs: Rows,
}

impl Stage {
    /// Slots of the cache before slot 0: 0 or 1.
    pub(super) fn lead(&self, spec: &MtpSpec) -> usize {
        usize::from(spec.slot0 == SlotZero::Extra).min(self.module.len())
    }

    /// Number of settled slots, as long as nothing is drafted.
    pub(super) fn settled(&self, spec: &MtpSpec) -> usize {
        self.module.len() - self.lead(spec)
    }

    /// Announces a chain of greedy drafts of the only module: from the second on it reads its own tokens and states.
    pub(super) fn announce(&mut self, spec: &MtpSpec, ctx: &DraftCtx<'_>) {
        // a grammar may choose another token than the module's best
        let is_chain = ctx.round.greedy && ctx.drafting.tree.is_none() && ctx.constrained.is_none();
        let reads_own = is_chain && spec.pairing == Pairing::Next && !spec.holds_position();
        let count = if reads_own { ctx.limit().min(ctx.round.draft_len) } else { 0 };
        let needs_all = !ctx.sampler.sampling.is_greedy() || ctx.constrained.is_some();
        let logits = if needs_all { LogitRows::All } else { LogitRows::Best };
        self.module.expect_drafts(count, logits);
    }

    /// Runs the slot before slot 0, with a zero state and the first token, if the conventions require it and it has not
    /// run yet.
    pub(super) fn begin(&mut self, spec: &MtpSpec, first: Option<TokenId>, width: usize) -> Result<(), ModelError> {
        if spec.slot0 == SlotZero::Extra && self.module.is_empty() {
            let first = first.ok_or_else(|| ModelError::Unsupported("an MTP slot before the first token".into()))?;
            self.module.forward(&[first], &Rows::new(vec![0.0; width], width))?;
        }
        Ok(())
    }
}
