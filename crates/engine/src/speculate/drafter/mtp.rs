//! Drafting with MTP modules: one slot per committed token, then more for each draft.
//!
//! Slot `t` of the first module reads the target's state at `t` and the token that this state predicted. With one
//! module, its own output replaces the state from depth 2 on, and the module is used again at every depth. With D
//! modules, module d reads the output of module d − 1 at `t` and the token d positions later, and drafts at depth d
//! (DeepSeek-V3 report, section 2.2); after depth D the last module is used again. The module's [`MtpSpec`], which the
//! settings can override, says how states and tokens are paired and whether there is a slot before the first.
//! Invariant: between rounds a module's cache contains only settled slots, which belong to committed tokens.

mod borrow;
mod reach;
mod stage;

pub(super) use self::reach::Reach;
use self::stage::Stage;
use super::{DraftCtx, Drafter, OwnToken, tree};
use draftscope_model::{DraftModule, Forward, LogitRows, Model, ModelError, Rows, Tap};
use draftscope_protocol::{DeviceWork, MtpSpec, Pairing, Settings, TokenId};

/// Most slots of a prompt in one pass.
const SETTLE_ROWS: usize = 256;

/// A drafter around one [`DraftModule`] or a stack of them.
pub struct MtpDrafter {
    stages: Vec<Stage>,
    /// The conventions that the modules were made for.
    made_for: MtpSpec,
    /// The conventions in force.
    spec: MtpSpec,
    /// The last conventions that the modules did not support, so that the error is reported once.
    refused: Option<MtpSpec>,
    is_stale: bool,
    notice: Option<String>,
    /// The token before the observed ones.
    first: Option<TokenId>,
    observed: Vec<TokenId>,
    /// Target states of the observed tokens that the first module has not run yet.
    states: Rows,
    /// Output of the first module's last settled slot: logits of the first draft, and the state for the second draft.
    head: Option<Forward>,
}

impl MtpDrafter {
    /// A drafter with this module, whose cache must be empty.
    #[must_use]
    pub fn new(module: Box<dyn DraftModule>) -> Self {
        Self::stack(vec![module])
    }

    /// A drafter with one module per depth, in order of depth; their caches must be empty.
    #[must_use]
    pub fn stack(modules: Vec<Box<dyn DraftModule>>) -> Self {
        let spec = modules.first().map(|module| module.spec()).unwrap_or_default();
        let stages = modules.into_iter().map(|module| Stage { module, outputs: Rows::default() }).collect();
        Self {
            stages,
            made_for: spec,
            spec,
            refused: None,
            is_stale: false,
            notice: None,
            first: None,
            observed: Vec::new(),
            states: Rows::default(),
            head: None,
        }
    }

    /// Tokens of these slots of module `depth`.
    fn tokens(&self, slots: std::ops::Range<usize>, depth: usize) -> Vec<TokenId> {
        match (self.spec.pairing, self.first) {
            (Pairing::Own, Some(first)) => {
                let all = std::iter::once(&first).chain(&self.observed);
                all.skip(slots.start + depth).take(slots.len()).copied().collect()
            }
            _ => self.observed[slots.start + depth..slots.end + depth].to_vec(),
        }
    }

    /// Removes all observed tokens.
    fn clear(&mut self) -> Result<(), ModelError> {
        self.first = None;
        self.rewind(0)
    }

    /// Runs the first module over the observed tokens that it has not run yet.
    fn settle_first(&mut self) -> Result<(), ModelError> {
        let keep = self.stages.len() > 1;
        let width = self.states.width();
        let states = std::mem::replace(&mut self.states, Rows::empty(width));
        if states.is_empty() {
            return Ok(());
        }
        let Some(first) = self.stages.first_mut() else {
            return Ok(());
        };
        first.begin(&self.spec, self.first, width)?;
        let settled = first.settled(&self.spec);
        let tokens = self.tokens(settled..self.observed.len().max(settled), 0);
        let Some(first) = self.stages.first_mut() else {
            return Ok(());
        };
        for (tokens, states) in tokens.chunks(SETTLE_ROWS).zip(states.as_slice().chunks(SETTLE_ROWS * width.max(1))) {
            let mut out = first.module.forward(tokens, &Rows::new(states.to_vec(), width))?;
            if keep {
                first.outputs.append(&out.hidden);
            }
            out.hidden = out.hidden.last_row();
            self.head = Some(out);
        }
        Ok(())
    }

    /// Runs the slots of module `depth` whose tokens are committed.
    fn settle_deeper(&mut self, depth: usize) -> Result<(), ModelError> {
        let ready = self.stages[depth - 1].outputs.len();
        let end = ready.min(self.observed.len().saturating_sub(depth));
        loop {
            let settled = self.stages[depth].settled(&self.spec);
            let slots = settled..end.min(settled + SETTLE_ROWS);
            if slots.is_empty() {
                return Ok(());
            }
            let tokens = self.tokens(slots.clone(), depth);
            let states = self.stages[depth - 1].outputs.slice(slots);
            let stage = &mut self.stages[depth];
            stage.begin(&self.spec, self.first, states.width())?;
            let out = stage.module.forward(&tokens, &states)?;
            stage.outputs.append(&out.hidden);
        }
    }

    /// Settles all modules; `target` is given if a draft follows.
    fn settle_all(&mut self, target: Option<&dyn Model>) -> Result<(), ModelError> {
        if self.shares_target_kv() {
            return target.map_or(Ok(()), |target| self.attach_kv(target));
        }
        self.settle_first()?;
        (1..self.stages.len()).try_for_each(|depth| self.settle_deeper(depth))
    }

    fn chain(&mut self, ctx: &mut DraftCtx<'_>) -> Result<(), ModelError> {
        let Some(mut reach) = Reach::new(self) else {
            return Ok(());
        };
        let drafted = (|| {
            while ctx.left() > 0 && reach.read(ctx.drafts())? {
                let Some(draft) = ctx.pick(reach.out(), Some(reach.vocab()), ctx.drafts().len())? else {
                    break;
                };
                if !ctx.propose(draft) {
                    break;
                }
            }
            Ok(())
        })();
        reach.leave()?;
        drafted
    }
}

impl Drafter for MtpDrafter {
    fn fork(&self) -> Result<Box<dyn Drafter>, ModelError> {
        let copy = |stage: &Stage| Ok(Stage { module: stage.module.fork()?, outputs: stage.outputs.clone() });
        let stages = self.stages.iter().map(copy).collect::<Result<_, ModelError>>()?;
        Ok(Box::new(Self {
            stages,
            made_for: self.made_for,
            spec: self.spec,
            refused: self.refused,
            is_stale: self.is_stale,
            notice: None,
            first: self.first,
            observed: self.observed.clone(),
            states: self.states.clone(),
            head: self.head.clone(),
        }))
    }

    fn device_work(&self) -> Option<DeviceWork> {
        self.stages.iter().filter_map(|stage| stage.module.device_work()).reduce(DeviceWork::and)
    }

    /// Tokens of the text join the vocabulary when their slot is run, so those that wait for it count as well.
    fn has_token(&self, own: OwnToken<'_>) -> Option<bool> {
        let vocab = self.stages.first()?.module.draft_vocab();
        let waiting = &self.observed[self.observed.len().saturating_sub(self.states.len())..];
        (vocab.len() < own.vocab).then(|| vocab.contains(&own.token) || waiting.contains(&own.token))
    }

    fn tap(&self) -> Tap {
        self.stages.first().map_or_else(Tap::none, |stage| stage.module.tap())
    }

    fn configure(&mut self, settings: &Settings) {
        let wanted = settings.drafting.mtp.apply(self.made_for);
        if wanted == self.spec || self.refused == Some(wanted) {
            return;
        }
        let tap = self.tap();
        let taken = self.stages.iter_mut().try_for_each(|stage| stage.module.set_spec(&wanted));
        match taken {
            Ok(()) => {
                self.spec = wanted;
                self.head = None; // its slots no longer exist
            }
            Err(error) => {
                self.refused = Some(wanted);
                let back = self.spec;
                let undone = self.stages.iter_mut().try_for_each(|stage| stage.module.set_spec(&back));
                self.notice = Some(match undone {
                    Ok(()) => format!("MTP conventions not changed: {error}"),
                    Err(worse) => format!("MTP conventions not changed: {error}; {worse}"),
                });
            }
        }
        // the caches are empty now; a module without a cache is stale only if it reads other states
        self.is_stale |= !self.shares_target_kv() || self.tap() != tap;
    }

    fn notice(&mut self) -> Option<String> {
        self.notice.take()
    }

    fn wants_reread(&self) -> bool {
        self.is_stale
    }

    fn reread(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<(), ModelError> {
        self.clear()?;
        self.is_stale = false;
        self.observe(tokens, hidden)
    }

    fn observe(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<(), ModelError> {
        if self.shares_target_kv() {
            self.note_last(tokens, hidden);
            return Ok(());
        }
        if self.states.width() != hidden.width() {
            self.states = Rows::empty(hidden.width());
        }
        self.observed.extend_from_slice(tokens);
        self.states.extend(hidden, tokens.len());
        Ok(())
    }

    fn settle(&mut self, committed: &[TokenId]) -> Result<(), ModelError> {
        self.first = committed.first().copied();
        // the settings may change before the first draft, which reads these logits
        self.stages.iter_mut().for_each(|stage| stage.module.expect_drafts(0, LogitRows::All));
        self.settle_all(None)
    }

    fn rewind(&mut self, len: usize) -> Result<(), ModelError> {
        if self.shares_target_kv() {
            return self.forget(len);
        }
        self.observed.truncate(len);
        let settled = self.stages.first().map_or(0, |stage| stage.settled(&self.spec));
        self.states = self.states.slice(0..len.saturating_sub(settled).min(self.states.len()));
        if len < settled {
            self.head = None; // the next prompt brings at least one token
        }
        for (depth, stage) in self.stages.iter_mut().enumerate() {
            let slots = len.saturating_sub(depth).min(stage.settled(&self.spec));
            // the slot before slot 0 contains the first token, which may differ in another text
            let lead = if slots == 0 { 0 } else { stage.lead(&self.spec) };
            stage.module.truncate(lead + slots)?;
            stage.outputs = stage.outputs.slice(0..slots.min(stage.outputs.len()));
        }
        Ok(())
    }

    fn draft(&mut self, ctx: &mut DraftCtx<'_>) -> Result<(), ModelError> {
        if ctx.round.draft_len == 0 || ctx.limit() == 0 {
            return Ok(()); // observed tokens wait until a draft is needed, so plain decoding costs nothing
        }
        self.first = ctx.committed.first().copied();
        if let [stage] = &mut self.stages[..] {
            stage.announce(&self.spec, ctx);
        }
        self.settle_all(Some(ctx.target))?;
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
