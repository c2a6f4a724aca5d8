//! Drafting with a second, smaller model that reads and writes the target's tokens and has its own cache.
//!
//! Before each draft its cache is compared with the committed tokens: differing positions are cut off, missing ones are
//! run. So the drafter can be switched on at any time and needs no separate rollback.
//!
//! A model that was trained for it (PARD) drafts all positions in one pass: a mask token stands for each draft that is not
//! known yet. Its drafts are independent: the token at a position does not know the one before it.

use super::{DraftCtx, Drafter};
use draftscope_model::{Checkpoint, Forward, LogitRows, Model, ModelError, Rows};
use draftscope_protocol::verify::Draft;
use draftscope_protocol::{DeviceWork, TokenId};

const START: Checkpoint = Checkpoint { len: 0 };

/// Most tokens before the anchor that the pass over the masks reads: of more the logits would cost too much memory.
const MOST_UNREAD: usize = 32;

/// Drafts with another model.
pub struct ModelDrafter {
    model: Box<dyn Model>,
    /// The tokens in its cache.
    cached: Vec<TokenId>,
    /// The token in place of drafts that are not known yet, of a model that drafts all positions in one pass.
    mask: Option<TokenId>,
    is_full: bool,
    notice: Option<String>,
}

impl ModelDrafter {
    /// A drafter with this model, whose cache must be empty.
    #[must_use]
    pub fn new(model: Box<dyn Model>) -> Self {
        Self { model, cached: Vec::new(), mask: None, is_full: false, notice: None }
    }

    /// A drafter with a model that drafts all positions in one pass, with this token in place of drafts; the model knows it.
    #[must_use]
    pub fn in_one_pass(model: Box<dyn Model>, mask: TokenId) -> Self {
        Self { mask: Some(mask), ..Self::new(model) }
    }

    /// Cuts the cache to the tokens that it has in common with these.
    fn agree(&mut self, tokens: &[TokenId]) -> Result<(), ModelError> {
        let same = self.cached.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        self.cut(same)
    }

    /// Brings the cache to these tokens. Returns the pass that ran the last of them, if one was needed.
    fn follow(&mut self, tokens: &[TokenId]) -> Result<Option<Forward>, ModelError> {
        self.agree(tokens)?;
        let same = self.cached.len();
        if same == tokens.len() {
            return Ok(None);
        }
        let Some(out) = self.run(&tokens[same..], LogitRows::Last)? else { return Ok(None) };
        self.cached.extend_from_slice(&tokens[same..]);
        Ok(Some(out))
    }

    /// Runs tokens; none if they do not fit: of a text in another tokenizer's tokens it is known only then.
    fn run(&mut self, tokens: &[TokenId], rows: LogitRows) -> Result<Option<Forward>, ModelError> {
        let vocab = self.model.spec().info.vocab;
        let known: Vec<TokenId> = tokens.iter().map(|token| known(*token, vocab)).collect();
        match self.model.forward(&known, rows) {
            Err(ModelError::ContextFull { .. }) => {
                self.say_full();
                Ok(None)
            }
            out => {
                self.is_full = false;
                out.map(Some)
            }
        }
    }

    /// Says once that the context is full.
    fn say_full(&mut self) {
        if !self.is_full {
            let ctx_len = self.model.spec().ctx_len;
            let message =
                format!("the draft model's context of {ctx_len} is full, so decoding continues without drafts");
            self.notice = Some(message);
        }
        self.is_full = true;
    }

    /// Number of drafts that fit into its context after `tokens` tokens. If none fit, a notice says so once.
    fn room(&mut self, tokens: usize) -> usize {
        let room = (self.model.spec().ctx_len + 1).saturating_sub(tokens);
        if room == 0 {
            self.say_full();
        }
        room
    }

    /// Cuts the cache to `len` tokens, or to fewer if a recurrent model can only return to an earlier position.
    fn cut(&mut self, len: usize) -> Result<(), ModelError> {
        let len = self.model.rewindable(len);
        self.cached.truncate(len);
        self.model.truncate(len, &START)
    }

    /// Drafts all positions in one pass over the tokens that it has not read, of which the anchor is the last, and a mask for
    /// each further draft: the anchor's row predicts the first one, each mask's row the next. Masks leave the cache.
    /// Source: PARD (arXiv:2504.18583; AMD-AIG-AIMA/PARD).
    fn draft_in_one_pass(&mut self, ctx: &mut DraftCtx<'_>, (mask, room): (TokenId, usize)) -> Result<(), ModelError> {
        let count = (ctx.drafts().len() + ctx.left()).min(room);
        let before = &ctx.committed[..ctx.committed.len() - 1];
        self.agree(before)?;
        if before.len() - self.cached.len() > MOST_UNREAD {
            self.follow(before)?;
        }
        let unread = &ctx.committed[self.cached.len()..];
        if count <= ctx.drafts().len() || unread.len() > MOST_UNREAD + 1 {
            return Ok(());
        }
        let tokens: Vec<TokenId> = unread.iter().copied().chain(std::iter::repeat_n(mask, count - 1)).collect();
        let Some(out) = self.run(&tokens, LogitRows::All)? else { return Ok(()) };
        self.cached.extend_from_slice(unread);
        self.cut(self.cached.len())?;
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

/// What a draft model with so many tokens reads of a text: its first token for one that only the target has at the end of
/// its vocabulary. The target decides about every draft, so this only makes drafts after it worse.
fn known(token: TokenId, vocab: u32) -> TokenId {
    if token.0 < vocab { token } else { TokenId(0) }
}

impl Drafter for ModelDrafter {
    fn fork(&self) -> Result<Box<dyn Drafter>, ModelError> {
        let (model, cached) = (self.model.fork()?, self.cached.clone());
        Ok(Box::new(Self { model, cached, mask: self.mask, is_full: self.is_full, notice: None }))
    }

    fn device_work(&self) -> Option<DeviceWork> {
        self.model.device_work()
    }

    fn has_token(&self, token: TokenId) -> Option<bool> {
        self.model.writes(token)
    }

    fn settle(&mut self, committed: &[TokenId]) -> Result<(), ModelError> {
        // not the anchor: it runs when drafting, since its logits predict the first draft
        if self.room(committed.len()) > 0 {
            self.follow(&committed[..committed.len().saturating_sub(1)])?;
        }
        Ok(())
    }

    fn notice(&mut self) -> Option<String> {
        self.notice.take()
    }

    fn draft(&mut self, ctx: &mut DraftCtx<'_>) -> Result<(), ModelError> {
        let room = self.room(ctx.committed.len());
        if ctx.left() == 0 || room == 0 {
            return Ok(());
        }
        if let Some(mask) = self.mask {
            return self.draft_in_one_pass(ctx, (mask, room));
        }
        // without the anchor, which must run for its logits
        self.cut(self.cached.len().min(ctx.committed.len() - 1))?;
        let mut out = self.follow(ctx.committed)?;
        while ctx.left() > 0 && ctx.drafts().len() < room {
            let tokens: Vec<TokenId> = ctx.drafts().iter().map(|draft| draft.token).collect();
            let unread = &tokens[self.cached.len().saturating_sub(ctx.committed.len()).min(tokens.len())..];
            if !unread.is_empty() {
                out = self.run(unread, LogitRows::Last)?;
                self.cached.extend_from_slice(if out.is_some() { unread } else { &[] });
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
