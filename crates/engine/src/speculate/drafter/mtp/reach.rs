//! A path of drafts after the settled slots.

use super::MtpDrafter;
use super::stage::Stage;
use draftscope_model::{Forward, ModelError};
use draftscope_protocol::verify::Draft;
use draftscope_protocol::{MtpSpec, Pairing, TokenId};

/// A path of drafts after the settled slots, and the modules' predictions along it.
pub(in crate::speculate::drafter) struct Reach<'a> {
    stages: &'a mut [Stage],
    spec: MtpSpec,
    /// Settled slots of the first module.
    settled: usize,
    /// The token that the last settled slot predicted from.
    anchor: TokenId,
    path: Vec<TokenId>,
    /// Outputs after 0, 1, 2 … tokens of the path, with the hidden rows of all slots that ran for them.
    outs: Vec<Forward>,
}

impl<'a> Reach<'a> {
    /// The empty path, at the anchor; none when nothing was observed.
    pub(in crate::speculate::drafter) fn new(drafter: &'a mut MtpDrafter) -> Option<Self> {
        let outs = vec![drafter.head.clone()?];
        let (spec, anchor) = (drafter.spec, *drafter.observed.last()?);
        let settled = drafter.stages.first()?.settled(&spec);
        if spec.holds_position() {
            for stage in &mut drafter.stages {
                stage.module.hold_position(Some(stage.module.len().saturating_sub(1)));
            }
        }
        Some(Self { stages: &mut drafter.stages, spec, settled, anchor, path: Vec::new(), outs })
    }

    /// Tokens of the slots after the settled ones.
    fn slot_tokens(&self) -> Vec<TokenId> {
        match self.spec.pairing {
            Pairing::Next => self.path.clone(),
            Pairing::Own => {
                std::iter::once(self.anchor).chain(self.path.iter().copied()).take(self.path.len()).collect()
            }
        }
    }

    /// The prediction of the next token.
    pub(in crate::speculate::drafter) fn out(&self) -> &Forward {
        self.outs.last().expect("the first stays")
    }

    /// The module that predicts the token after `depth` drafts.
    fn stage(&self, depth: usize) -> usize {
        depth.min(self.stages.len() - 1)
    }

    /// Tokens of the logits of [`Reach::out`].
    pub(in crate::speculate::drafter) fn vocab(&self) -> &[TokenId] {
        self.stages[self.stage(self.path.len())].module.draft_vocab()
    }

    /// Extends the path by one draft. False if the text is too short for a deeper module.
    pub(in crate::speculate::drafter) fn advance(&mut self, token: TokenId) -> Result<bool, ModelError> {
        self.path.push(token);
        let depth = self.path.len();
        let tokens = self.slot_tokens();
        let out = if depth < self.stages.len() {
            // module `depth` has not run the slots whose tokens are drafts
            let Some(first) = self.settled.checked_sub(depth) else {
                self.path.pop();
                return Ok(false);
            };
            let mut states = self.stages[depth - 1].outputs.slice(first..first + 1);
            if depth > 1 {
                states.append(&self.outs[depth - 1].hidden);
            }
            self.stages[depth].module.forward(&tokens, &states)
        } else {
            let stage = self.stage(depth);
            self.stages[stage].module.forward(&tokens[depth - 1..], &self.out().hidden.last_row())
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

    /// Extends the path to these drafts of a chain. False if the text is too short for a deeper module.
    pub(in crate::speculate::drafter) fn read(&mut self, drafts: &[Draft]) -> Result<bool, ModelError> {
        for draft in drafts.get(self.path.len()..).unwrap_or_default() {
            if !self.advance(draft.token)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Changes to another path, and keeps the part that both share.
    pub(in crate::speculate::drafter) fn go_to(&mut self, path: &[TokenId]) -> Result<bool, ModelError> {
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

    /// Removes all drafted slots.
    pub(in crate::speculate::drafter) fn leave(mut self) -> Result<(), ModelError> {
        let left = self.go_to(&[]).map(|_| ());
        self.stages.iter_mut().for_each(|stage| stage.module.hold_position(None));
        left
    }
}
