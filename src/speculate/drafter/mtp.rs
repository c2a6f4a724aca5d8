//! Drafting with MTP modules: one slot per committed token, then more for each draft.
//!
//! Slot `t` of the first module reads the target's state at `t` and the token that this state predicted.
//! With one module, its own output takes the state's place from depth 2 on and the module is used again
//! at every depth. With D modules, module d reads module d − 1's output at `t` and the token d places
//! further on, and drafts at depth d (DeepSeek-V3 report, section 2.2); behind depth D the last one is
//! used again. Invariant: between rounds a module's cache holds settled slots only, nothing drafted.

use super::{DraftCtx, Drafter, tree};
use crate::model::{Forward, ModelError, MtpModule, Rows};
use crate::protocol::TokenId;

/// Slots of a prompt that run at once.
const SETTLE_ROWS: usize = 256;

/// A module and what it made of the settled slots.
struct Stage {
    module: Box<dyn MtpModule>,
    /// One row per settled slot, kept where a deeper module reads them.
    outputs: Rows,
}

/// A drafter around one [`MtpModule`] or a stack of them.
pub struct MtpDrafter {
    stages: Vec<Stage>,
    observed: Vec<TokenId>,
    /// Target states of the observed tokens that the first module has not run.
    states: Rows,
    /// Output of the first module's last settled slot: logits of the first draft, and the state for the
    /// second.
    head: Option<Forward>,
}

impl MtpDrafter {
    /// Drafts with this module, whose cache must be empty.
    #[must_use]
    pub fn new(module: Box<dyn MtpModule>) -> Self {
        Self::stack(vec![module])
    }

    /// Drafts with one module per depth, the first first; their caches must be empty.
    #[must_use]
    pub fn stack(modules: Vec<Box<dyn MtpModule>>) -> Self {
        let stages = modules.into_iter().map(|module| Stage { module, outputs: Rows::default() }).collect();
        Self { stages, observed: Vec::new(), states: Rows::default(), head: None }
    }

    /// Runs what the first module has not seen.
    fn settle_first(&mut self) -> Result<(), ModelError> {
        let keep = self.stages.len() > 1;
        let Some(first) = self.stages.first_mut() else {
            return Ok(());
        };
        let width = self.states.width();
        let states = std::mem::replace(&mut self.states, Rows::empty(width));
        let tokens = self.observed[first.module.len().min(self.observed.len())..].chunks(SETTLE_ROWS);
        for (tokens, states) in tokens.zip(states.as_slice().chunks(SETTLE_ROWS * width.max(1))) {
            let mut out = first.module.forward(tokens, &Rows::new(states.to_vec(), width))?;
            if keep {
                first.outputs.append(&out.hidden);
            }
            out.hidden = out.hidden.last_row();
            self.head = Some(out);
        }
        Ok(())
    }

    /// Runs the slots of module `depth` whose token is known.
    fn settle_deeper(&mut self, depth: usize) -> Result<(), ModelError> {
        let (before, rest) = self.stages.split_at_mut(depth);
        let (inputs, stage) = (&before[depth - 1].outputs, &mut rest[0]);
        let end = inputs.len().min(self.observed.len().saturating_sub(depth));
        while stage.module.len() < end {
            let slots = stage.module.len()..end.min(stage.module.len() + SETTLE_ROWS);
            let tokens = &self.observed[slots.start + depth..slots.end + depth];
            let out = stage.module.forward(tokens, &inputs.slice(slots))?;
            stage.outputs.append(&out.hidden);
        }
        Ok(())
    }

    fn settle_all(&mut self) -> Result<(), ModelError> {
        self.settle_first()?;
        (1..self.stages.len()).try_for_each(|depth| self.settle_deeper(depth))
    }

    fn chain(&mut self, ctx: &mut DraftCtx<'_>) -> Result<(), ModelError> {
        let limit = ctx.limit().min(ctx.round.draft_len);
        let Some(mut reach) = Reach::new(self) else {
            return Ok(());
        };
        let drafted = (|| {
            for depth in 0..limit {
                let Some(draft) = ctx.pick(reach.out(), Some(reach.vocab()), depth)? else {
                    break;
                };
                let token = draft.token;
                if !ctx.propose(draft) || depth + 1 == limit || !reach.advance(token)? {
                    break;
                }
            }
            Ok(())
        })();
        reach.leave()?;
        drafted
    }
}

/// A path of drafts behind the settled slots, and what the modules say at its end.
pub(super) struct Reach<'a> {
    stages: &'a mut [Stage],
    /// Settled slots of the first module.
    settled: usize,
    path: Vec<TokenId>,
    /// Behind 0, 1, 2 … tokens of the path; the hidden rows of all slots that were run for it.
    outs: Vec<Forward>,
}

impl<'a> Reach<'a> {
    /// At the anchor; none when nothing was observed.
    pub(super) fn new(drafter: &'a mut MtpDrafter) -> Option<Self> {
        let outs = vec![drafter.head.clone()?];
        let settled = drafter.stages.first()?.module.len();
        Some(Self { stages: &mut drafter.stages, settled, path: Vec::new(), outs })
    }

    /// What is said of the next token.
    pub(super) fn out(&self) -> &Forward {
        self.outs.last().expect("the first stays")
    }

    /// The module that speaks behind `depth` drafts.
    fn stage(&self, depth: usize) -> usize {
        depth.min(self.stages.len() - 1)
    }

    /// Tokens of the logits of [`Reach::out`].
    pub(super) fn vocab(&self) -> &[TokenId] {
        self.stages[self.stage(self.path.len())].module.draft_vocab()
    }

    /// Goes one draft further; false where the text is too short for a deeper module.
    pub(super) fn advance(&mut self, token: TokenId) -> Result<bool, ModelError> {
        self.path.push(token);
        let depth = self.path.len();
        let out = if depth < self.stages.len() {
            // module `depth` lacks the slots whose tokens are the drafts
            let Some(first) = self.settled.checked_sub(depth) else {
                self.path.pop();
                return Ok(false);
            };
            let mut states = self.stages[depth - 1].outputs.slice(first..first + 1);
            if depth > 1 {
                states.append(&self.outs[depth - 1].hidden);
            }
            self.stages[depth].module.forward(&self.path, &states)
        } else {
            let stage = self.stage(depth);
            self.stages[stage].module.forward(&[token], &self.out().hidden.last_row())
        };
        match out {
            Ok(out) => self.outs.push(out),
            Err(error) => {
                self.path.pop();
                return Err(error);
            }
        }
        Ok(true)
    }

    /// Goes to the end of another path.
    pub(super) fn go_to(&mut self, path: &[TokenId]) -> Result<bool, ModelError> {
        let same = self.path.iter().zip(path).take_while(|(a, b)| a == b).count();
        while self.path.len() > same {
            self.back()?;
        }
        for token in &path[same..] {
            if !self.advance(*token)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn back(&mut self) -> Result<(), ModelError> {
        let depth = self.path.len();
        let slots = if depth < self.stages.len() { depth } else { 1 };
        let stage = self.stage(depth);
        let module = &mut self.stages[stage].module;
        module.truncate(module.len() - slots)?;
        self.path.pop();
        self.outs.pop();
        Ok(())
    }

    /// Takes all drafted slots out again.
    pub(super) fn leave(mut self) -> Result<(), ModelError> {
        self.go_to(&[]).map(|_| ())
    }
}

impl Drafter for MtpDrafter {
    fn fork(&self) -> Result<Box<dyn Drafter>, ModelError> {
        let copy = |stage: &Stage| Ok(Stage { module: stage.module.fork()?, outputs: stage.outputs.clone() });
        let stages = self.stages.iter().map(copy).collect::<Result<_, ModelError>>()?;
        let (observed, states, head) = (self.observed.clone(), self.states.clone(), self.head.clone());
        Ok(Box::new(Self { stages, observed, states, head }))
    }

    fn observe(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<(), ModelError> {
        if self.states.width() != hidden.width() {
            self.states = Rows::empty(hidden.width());
        }
        self.observed.extend_from_slice(tokens);
        self.states.extend(hidden, tokens.len());
        Ok(())
    }

    fn settle(&mut self, _: &[TokenId]) -> Result<(), ModelError> {
        self.settle_all()
    }

    fn rewind(&mut self, len: usize) -> Result<(), ModelError> {
        self.observed.truncate(len);
        let settled = self.stages.first().map_or(0, |stage| stage.module.len());
        self.states = self.states.slice(0..len.saturating_sub(settled).min(self.states.len()));
        if len < settled {
            self.head = None; // the next prompt brings at least one token
        }
        for (depth, stage) in self.stages.iter_mut().enumerate() {
            let slots = len.saturating_sub(depth).min(stage.module.len());
            stage.module.truncate(slots)?;
            stage.outputs = stage.outputs.slice(0..slots.min(stage.outputs.len()));
        }
        Ok(())
    }

    fn draft(&mut self, ctx: &mut DraftCtx<'_>) -> Result<(), ModelError> {
        if ctx.round.draft_len == 0 || ctx.limit() == 0 {
            return Ok(()); // what was observed waits: plain decoding pays nothing
        }
        self.settle_all()?;
        if ctx.drafting.tree.is_none() {
            return self.chain(ctx);
        }
        let Some(mut reach) = Reach::new(self) else {
            return Ok(());
        };
        let drafted = tree::grow(ctx, &mut reach);
        reach.leave()?;
        drafted
    }
}
