//! Drafting with a second, smaller model that reads and writes the target's tokens and has its own cache.
//!
//! A model that was trained for it (PARD) drafts all positions in one pass: a mask token stands for each draft that is not
//! known yet. Its drafts are independent: the token at a position does not know the one before it.

use super::cached_model::CachedModel;
use super::{DraftCtx, Drafter, OwnToken};
use draftscope_model::{Forward, LogitRows, Model, ModelError, Rows};
use draftscope_protocol::verify::Draft;
use draftscope_protocol::{DeviceWork, TokenId};

/// Most tokens before the anchor that the pass over the masks reads: of more the logits would cost too much memory.
const MOST_UNREAD: usize = 32;

/// Drafts with another model.
pub struct ModelDrafter {
    own: CachedModel,
    /// The token in place of drafts that are not known yet, of a model that drafts all positions in one pass.
    mask: Option<TokenId>,
}

impl ModelDrafter {
    /// A drafter with this model, whose cache must be empty.
    #[must_use]
    pub fn new(model: Box<dyn Model>) -> Self {
        Self { own: CachedModel::new(model), mask: None }
    }

    /// A drafter with a model that drafts all positions in one pass, with this token in place of drafts; the model knows it.
    #[must_use]
    pub fn in_one_pass(model: Box<dyn Model>, mask: TokenId) -> Self {
        Self { mask: Some(mask), ..Self::new(model) }
    }

    /// Drafts all positions in one pass over the tokens that it has not read, of which the anchor is the last, and a mask for
    /// each further draft: the anchor's row predicts the first one, each mask's row the next. Masks leave the cache.
    /// Source: PARD (arXiv:2504.18583; AMD-AIG-AIMA/PARD).
    fn draft_in_one_pass(&mut self, ctx: &mut DraftCtx<'_>, (mask, room): (TokenId, usize)) -> Result<(), ModelError> {
        let count = (ctx.drafts().len() + ctx.left()).min(room);
        let before = &ctx.committed[..ctx.committed.len() - 1];
        self.own.agree(before)?;
        if before.len() - self.own.len() > MOST_UNREAD {
            self.own.follow(before)?;
        }
        let unread = &ctx.committed[self.own.len()..];
        if count <= ctx.drafts().len() || unread.len() > MOST_UNREAD + 1 {
            return Ok(());
        }
        let tokens: Vec<TokenId> = unread.iter().copied().chain(std::iter::repeat_n(mask, count - 1)).collect();
        let Some(out) = self.own.run(&tokens, count - 1, LogitRows::All)? else { return Ok(()) };
        self.own.cut(self.own.len())?;
        let first = tokens.len() - count;
        while ctx.left() > 0 && ctx.drafts().len() < count {
            let index = ctx.drafts().len();
            let Some(draft) = ctx.pick(&row(&out, first + index), None, index)? else { break };
            if !ctx.propose(Draft { more: index + 1 < count, ..draft }) {
                break;
            }
        }
        Ok(())
    }
}

/// One row of a pass.
fn row(out: &Forward, index: usize) -> Forward {
    let stats = out.stats.get(index).cloned().into_iter().collect();
    Forward { logits: out.logits.slice(index..index + 1), hidden: Rows::default(), stats }
}

impl Drafter for ModelDrafter {
    fn fork(&self) -> Result<Box<dyn Drafter>, ModelError> {
        Ok(Box::new(Self { own: self.own.fork()?, mask: self.mask }))
    }

    fn device_work(&self) -> Option<DeviceWork> {
        self.own.device_work()
    }

    fn has_token(&self, own: OwnToken<'_>) -> Option<bool> {
        self.own.writes(own.token)
    }

    fn settle(&mut self, committed: &[TokenId]) -> Result<(), ModelError> {
        // not the anchor: it runs when drafting, since its logits predict the first draft
        if self.own.room(committed.len()) > 0 {
            self.own.follow(&committed[..committed.len().saturating_sub(1)])?;
        }
        Ok(())
    }

    fn notice(&mut self) -> Option<String> {
        self.own.notice()
    }

    fn draft(&mut self, ctx: &mut DraftCtx<'_>) -> Result<(), ModelError> {
        let room = self.own.room(ctx.committed.len());
        if ctx.left() == 0 || room == 0 {
            return Ok(());
        }
        if let Some(mask) = self.mask {
            return self.draft_in_one_pass(ctx, (mask, room));
        }
        // without the anchor, which must run for its logits
        self.own.cut(self.own.len().min(ctx.committed.len() - 1))?;
        let mut out = self.own.follow(ctx.committed)?;
        while ctx.left() > 0 && ctx.drafts().len() < room {
            let tokens: Vec<TokenId> = ctx.drafts().iter().map(|draft| draft.token).collect();
            let unread = &tokens[self.own.len().saturating_sub(ctx.committed.len()).min(tokens.len())..];
            if !unread.is_empty() {
                out = self.own.run(unread, 0, LogitRows::Last)?;
            }
            let Some(row) = out.take() else {
                break;
            };
            let Some(draft) = ctx.pick(&row, None, ctx.drafts().len())? else {
                break;
            };
            if !ctx.propose(draft) {
                break;
            }
        }
        Ok(())
    }
}
