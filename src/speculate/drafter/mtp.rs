//! Drafting with an MTP module: one slot per committed token, then one more per draft.
//!
//! Invariant: between rounds the module's cache holds one slot per settled token and nothing
//! drafted. Slot `t` reads the target's state and the token that this state predicted; from depth 2
//! on the module's own output takes the state's place (DeepSeek-V3's chain with one module used
//! again at every depth).

use super::Drafter;
use crate::model::{Forward, ModelError, MtpModule, Rows};
use crate::protocol::TokenId;
use crate::speculate::draws::Purpose;
use crate::speculate::sampler::{LogitRow, Sampler};
use crate::speculate::verify::{Draft, RoundCtx};

/// Slots of a prompt that run at once.
const SETTLE_ROWS: usize = 256;

/// A drafter around an [`MtpModule`].
pub struct MtpDrafter {
    module: Box<dyn MtpModule>,
    /// Observed but not run: tokens, and the states that predicted them.
    waiting: Vec<TokenId>,
    states: Rows,
    /// Output of the last settled slot: logits of the first draft, and the state for the second.
    head: Option<Forward>,
}

impl MtpDrafter {
    /// Drafts with this module, whose cache must be empty.
    #[must_use]
    pub fn new(module: Box<dyn MtpModule>) -> Self {
        Self { module, waiting: Vec::new(), states: Rows::default(), head: None }
    }

    fn pick(&self, ctx: &RoundCtx<'_>, sampler: &Sampler, depth: usize, out: &Forward) -> Result<Draft, ModelError> {
        let position = ctx.position + depth;
        let q = sampler.distribution(&LogitRow::of(out, 0, Some(self.module.draft_vocab())), None, position)?;
        let token = if ctx.greedy { q.argmax() } else { q.pick(ctx.draws.uniform(Purpose::Draft, position)) };
        Ok(Draft { token, q: Some(q) })
    }

    fn chain(
        &mut self,
        ctx: &RoundCtx<'_>,
        sampler: &Sampler,
        on_draft: &mut dyn FnMut(&Draft),
    ) -> Result<Vec<Draft>, ModelError> {
        let Some(mut out) = self.head.clone() else {
            return Ok(Vec::new());
        };
        let mut drafts: Vec<Draft> = Vec::with_capacity(ctx.draft_len);
        for depth in 0..ctx.draft_len {
            if let Some(previous) = drafts.last() {
                out = self.module.forward(&[previous.token], &out.hidden)?;
            }
            let draft = self.pick(ctx, sampler, depth, &out)?;
            on_draft(&draft);
            drafts.push(draft);
        }
        Ok(drafts)
    }
}

impl Drafter for MtpDrafter {
    fn observe(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<(), ModelError> {
        if self.states.width() != hidden.width() {
            self.states = Rows::empty(hidden.width());
        }
        self.waiting.extend_from_slice(tokens);
        self.states.extend(hidden, tokens.len());
        Ok(())
    }

    fn settle(&mut self) -> Result<(), ModelError> {
        let width = self.states.width();
        let (tokens, states) = (std::mem::take(&mut self.waiting), std::mem::take(&mut self.states));
        self.states = Rows::empty(width);
        for (tokens, states) in tokens.chunks(SETTLE_ROWS).zip(states.as_slice().chunks(SETTLE_ROWS * width.max(1))) {
            let mut out = self.module.forward(tokens, &Rows::new(states.to_vec(), width))?;
            out.hidden = out.hidden.last_row();
            self.head = Some(out);
        }
        Ok(())
    }

    fn rewind(&mut self, len: usize) -> Result<(), ModelError> {
        let settled = self.module.len();
        if len >= settled {
            let waiting = (len - settled).min(self.waiting.len());
            self.waiting.truncate(waiting);
            let mut states = Rows::empty(self.states.width());
            states.extend(&self.states, waiting);
            self.states = states;
            return Ok(());
        }
        self.waiting.clear();
        self.states.clear();
        self.head = None; // the next prompt brings at least one token
        self.module.truncate(len)
    }

    fn draft(
        &mut self,
        ctx: &RoundCtx<'_>,
        sampler: &Sampler,
        on_draft: &mut dyn FnMut(&Draft),
    ) -> Result<Vec<Draft>, ModelError> {
        if ctx.draft_len == 0 {
            return Ok(Vec::new()); // what was observed waits: plain decoding pays nothing
        }
        self.settle()?;
        let settled = self.module.len();
        let drafts = self.chain(ctx, sampler, on_draft);
        self.module.truncate(settled)?;
        drafts
    }
}
