//! A second, smaller model with the same tokenizer drafts; it has its own cache and its own rollback.
//!
//! Its cache is held against the committed tokens before each draft: what differs is cut off, what is
//! missing is run. So it may be switched on at any time and never has to be told what to forget.

use super::{DraftCtx, Drafter};
use crate::model::{Checkpoint, Forward, LogitRows, Model, ModelError};
use crate::protocol::TokenId;

const START: Checkpoint = Checkpoint { len: 0 };

/// Drafts with another model.
pub struct ModelDrafter {
    model: Box<dyn Model>,
    /// What its cache holds.
    cached: Vec<TokenId>,
    is_full: bool,
    notice: Option<String>,
}

impl ModelDrafter {
    /// Drafts with this model, whose cache must be empty.
    #[must_use]
    pub fn new(model: Box<dyn Model>) -> Self {
        Self { model, cached: Vec::new(), is_full: false, notice: None }
    }

    /// Brings the cache to these tokens; the pass that ran the last of them, when there was one.
    fn follow(&mut self, tokens: &[TokenId]) -> Result<Option<Forward>, ModelError> {
        let same = self.cached.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        self.cut(same)?;
        let same = self.cached.len();
        if same == tokens.len() {
            return Ok(None);
        }
        let out = self.model.forward(&tokens[same..], LogitRows::Last)?;
        self.cached.extend_from_slice(&tokens[same..]);
        Ok(Some(out))
    }

    /// Drafts that its context has room for behind so many tokens; says so once when there are none.
    fn room(&mut self, tokens: usize) -> usize {
        let ctx_len = self.model.spec().ctx_len;
        let room = (ctx_len + 1).saturating_sub(tokens);
        if room == 0 && !self.is_full {
            let message = format!("the draft model's context of {ctx_len} is full, so plain decoding goes on");
            self.notice = Some(message);
        }
        self.is_full = room == 0;
        room
    }

    /// Cuts the cache to `len` tokens, or fewer where a recurrent model can only return further back.
    fn cut(&mut self, len: usize) -> Result<(), ModelError> {
        let len = self.model.rewindable(len);
        self.cached.truncate(len);
        self.model.truncate(len, &START)
    }
}

impl Drafter for ModelDrafter {
    fn fork(&self) -> Result<Box<dyn Drafter>, ModelError> {
        let (model, cached) = (self.model.fork()?, self.cached.clone());
        Ok(Box::new(Self { model, cached, is_full: self.is_full, notice: None }))
    }

    fn settle(&mut self, committed: &[TokenId]) -> Result<(), ModelError> {
        // the anchor stays to be run: its logits are the first draft's
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
        let limit = ctx.limit().min(ctx.round.draft_len).min(room);
        if limit == 0 {
            return Ok(());
        }
        // all but the anchor at most: it must be run for its logits
        self.cut(self.cached.len().min(ctx.committed.len() - 1))?;
        let mut out = self.follow(ctx.committed)?;
        for depth in 0..limit {
            let Some(row) = out.take() else {
                break;
            };
            let Some(draft) = ctx.pick(&row, None, depth)? else {
                break;
            };
            let token = draft.token;
            if !ctx.propose(draft) || depth + 1 == limit {
                break;
            }
            out = Some(self.model.forward(&[token], LogitRows::Last)?);
            self.cached.push(token);
        }
        Ok(())
    }
}
