//! Drafting with an MTP module: one slot per committed token, then one more per draft.
//!
//! Invariant: between rounds the module's cache holds one slot per settled token and nothing
//! drafted. Slot `t` reads the target's state and the token that this state predicted; from depth 2
//! on the module's own output takes the state's place (DeepSeek-V3's chain with one module used
//! again at every depth).

use super::Drafter;
use crate::model::{ModelError, MtpModule, Rows};
use crate::protocol::TokenId;
use crate::speculate::draws::Purpose;
use crate::speculate::sampler::Sampler;
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
    head: Option<(Vec<f32>, Rows)>,
}

impl MtpDrafter {
    /// Drafts with this module, whose cache must be empty.
    #[must_use]
    pub fn new(module: Box<dyn MtpModule>) -> Self {
        Self { module, waiting: Vec::new(), states: Rows::default(), head: None }
    }

    /// Runs one slot and returns (logits, state) of its output.
    fn slot(&mut self, token: TokenId, state: &Rows) -> Result<(Vec<f32>, Rows), ModelError> {
        let out = self.module.forward(&[token], state)?;
        Ok((out.logits.row(0).to_vec(), out.hidden))
    }

    fn pick(&self, ctx: &RoundCtx<'_>, sampler: &Sampler, depth: usize, logits: &[f32]) -> Result<Draft, ModelError> {
        let position = ctx.position + depth;
        let q = sampler.distribution(logits, Some(self.module.draft_vocab()), None, position)?;
        let token = if ctx.greedy { q.argmax() } else { q.pick(ctx.draws.uniform(Purpose::Draft, position)) };
        Ok(Draft { token, q: Some(q) })
    }

    fn chain(
        &mut self,
        ctx: &RoundCtx<'_>,
        sampler: &Sampler,
        on_draft: &mut dyn FnMut(&Draft),
    ) -> Result<Vec<Draft>, ModelError> {
        let Some((mut logits, mut state)) = self.head.clone() else {
            return Ok(Vec::new());
        };
        let mut drafts = Vec::with_capacity(ctx.draft_len);
        for depth in 0..ctx.draft_len {
            if depth > 0 {
                let previous: &Draft = &drafts[depth - 1];
                (logits, state) = self.slot(previous.token, &state)?;
            }
            let draft = self.pick(ctx, sampler, depth, &logits)?;
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
            let out = self.module.forward(tokens, &Rows::new(states.to_vec(), width))?;
            let state = out.hidden.row(out.hidden.len() - 1).to_vec();
            self.head = Some((out.logits.row(0).to_vec(), Rows::new(state, out.hidden.width())));
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
