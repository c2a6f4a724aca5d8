//! Drafting a whole block in one pass: DFlash, DFlash 2 and DSpark.
//!
//! The module's cache follows the committed tokens but the anchor, whose states the target has not computed yet. A pass
//! gives every position its distribution at once. Those of DFlash are independent: the token at a position does not know
//! the one before it. DSpark corrects them one after the other, each by the token that was drafted before it, so q is the
//! distribution that the token was drawn from and rejection sampling stays exact. DFlash 2 scores the best tokens of a position
//! after the token that was drafted before it, and q is over these alone. If a drafter predicts acceptance too, p-min is
//! compared with that. Under a grammar each position is masked as the path to it is chosen, so q is also then what the token
//! was drawn from.

use super::{DraftCtx, Drafter, OwnToken};
use draftscope_model::block_module::{BlockModule, Candidates};
use draftscope_model::{Forward, ModelError, Rows, Tap};
use draftscope_protocol::verify::Draft;
use draftscope_protocol::{LatticeColumn, MtpOverride, Settings, TokenId};

/// A drafter around a [`BlockModule`].
pub struct BlockDrafter {
    module: Box<dyn BlockModule>,
    /// States of observed tokens that are not in the module's cache yet.
    pending: Rows,
    /// What notices have said already.
    reported: Reported,
    notice: Option<String>,
}

/// Notices that are given once.
#[derive(Clone, Copy, Debug, Default)]
struct Reported {
    /// That a pass drafts fewer than k.
    short: bool,
    /// That it drafts no trees.
    tree: bool,
    /// That it has no conventions to change.
    conventions: bool,
}

impl BlockDrafter {
    /// A drafter with this module, whose cache must be empty.
    #[must_use]
    pub fn new(module: Box<dyn BlockModule>) -> Self {
        Self { module, pending: Rows::default(), reported: Reported::default(), notice: None }
    }

    /// Puts the pending states into the cache. They stay pending if that fails: the cache then is as before.
    fn inject(&mut self) -> Result<(), ModelError> {
        if !self.pending.is_empty() {
            self.module.inject(&self.pending)?;
            self.pending = Rows::empty(self.pending.width());
        }
        Ok(())
    }

    /// Positions of the round's pass, those of forced drafts before it included; a notice says once that a block has fewer
    /// than k.
    fn count(&mut self, ctx: &DraftCtx<'_>) -> usize {
        let (wanted, most) = (ctx.drafts().len() + ctx.left(), self.module.most_drafts());
        if ctx.drafting.tree.is_some() && !self.reported.tree {
            self.reported.tree = true;
            self.notice = Some("a block drafter drafts a chain, so --tree has no effect".to_owned());
        } else if wanted > most && !self.reported.short {
            self.reported.short = true;
            self.notice = Some(format!("a pass of the block drafter drafts {most} tokens at most, so k is {most}"));
        }
        wanted.min(most)
    }

    /// Picks the draft of one position, whose prediction depends on the token before it.
    fn pick(
        &self,
        ctx: &mut DraftCtx<'_>,
        row: &[f32],
        (index, before): (usize, TokenId),
    ) -> Result<Option<Draft>, ModelError> {
        let predicted = if ctx.drafting.p_min > 0.0 { self.module.confidence(index, before)? } else { None };
        let Some(candidates) = self.module.select(index, row, before)? else {
            let mut row = row.to_vec();
            self.module.correct(&mut row, before)?;
            return ctx.pick_predicted(&prediction(row), Some(self.module.draft_vocab()), (index, predicted));
        };
        let Candidates { tokens, alone, scores } = candidates;
        let draft = ctx.pick_predicted(&prediction(scores.clone()), Some(&tokens), (index, predicted))?;
        let chosen = draft.as_ref().map(|draft| draft.token);
        ctx.lattice.push(LatticeColumn::new(index, &tokens, [&alone, &scores], chosen));
        Ok(draft)
    }
}

/// One row of logits.
fn prediction(row: Vec<f32>) -> Forward {
    let width = row.len();
    Forward { logits: Rows::new(row, width), hidden: Rows::default(), stats: Vec::new() }
}

impl Drafter for BlockDrafter {
    fn has_token(&self, own: OwnToken<'_>) -> Option<bool> {
        let vocab = self.module.draft_vocab();
        (vocab.len() < own.vocab).then(|| vocab.contains(&own.token))
    }

    fn tap(&self) -> Tap {
        self.module.tap()
    }

    fn configure(&mut self, settings: &Settings) {
        if settings.drafting.mtp != MtpOverride::default() && !self.reported.conventions {
            self.reported.conventions = true;
            self.notice = Some("a block drafter has no MTP conventions, so --mtp-spec has no effect".to_owned());
        }
    }

    fn observe(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<(), ModelError> {
        if self.pending.width() != hidden.width() {
            self.pending = Rows::empty(hidden.width());
        }
        self.pending.extend(hidden, tokens.len());
        Ok(())
    }

    fn settle(&mut self, _committed: &[TokenId]) -> Result<(), ModelError> {
        self.inject()
    }

    fn rewind(&mut self, len: usize) -> Result<(), ModelError> {
        let cached = self.module.len();
        self.pending = self.pending.slice(0..len.saturating_sub(cached).min(self.pending.len()));
        self.module.truncate(len.min(cached))
    }

    fn reread(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<(), ModelError> {
        self.rewind(0)?;
        self.observe(tokens, hidden)
    }

    fn draft(&mut self, ctx: &mut DraftCtx<'_>) -> Result<(), ModelError> {
        let count = self.count(ctx);
        let Some(anchor) = ctx.committed.last().copied().filter(|_| count > ctx.drafts().len()) else {
            return Ok(()); // observed states wait until a draft is needed, so plain decoding costs nothing
        };
        self.inject()?;
        let logits = self.module.draft(anchor, count)?;
        while ctx.left() > 0 && ctx.drafts().len() < count {
            let (index, before) = (ctx.drafts().len(), ctx.drafts().last().map_or(anchor, |draft| draft.token));
            let Some(draft) = self.pick(ctx, logits.row(index), (index, before))? else { break };
            if !ctx.propose(Draft { more: index + 1 < count, ..draft }) {
                break;
            }
        }
        Ok(())
    }

    fn fork(&self) -> Result<Box<dyn Drafter>, ModelError> {
        let (module, pending) = (self.module.fork()?, self.pending.clone());
        Ok(Box::new(Self { module, pending, reported: self.reported, notice: None }))
    }

    fn notice(&mut self) -> Option<String> {
        self.notice.take()
    }
}
