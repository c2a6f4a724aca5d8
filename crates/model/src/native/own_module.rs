//! Draft modules in a target's own files, on the native kernels.

use super::draft_head::{DraftHead, Head};
use super::load::{Loader, tiled_bytes};
use super::module::NativeModule;
use super::module_target::ModuleTarget;
use super::tensors::Tensors;
use crate::ModelError;
use crate::draft_tokens::{CONTEXT_VOCAB, DraftTokens};
use crate::files::ModelFiles;
use crate::nn::TransformerConfig;
use crate::plan::{DraftPlan, Plan};
use draftscope_protocol::TokenId;

/// A model on disk, and the plan of its target.
pub(crate) type Files<'a> = (&'a ModelFiles, &'a TransformerConfig, &'a Plan);

/// The heads of a target's modules: rows of the target's that all of them share, or a module's own.
#[derive(Debug)]
pub(crate) struct OwnHeads {
    /// Tokens that modules may propose; `None`: all.
    vocab: Option<Vec<TokenId>>,
    /// The target's head, trimmed.
    trimmed: Option<(DraftHead, DraftTokens)>,
}

impl OwnHeads {
    /// For modules that may propose these tokens; `None`: all.
    pub(crate) fn new(vocab: Option<Vec<TokenId>>) -> Self {
        Self { vocab, trimmed: None }
    }

    fn of_target(&mut self, target: &ModuleTarget) -> Result<Head, ModelError> {
        let Some(vocab) = &self.vocab else {
            let (head, tokens) = DraftHead::whole(&target.weights);
            return Ok((head, tokens, 0));
        };
        if let Some((head, tokens)) = &self.trimmed {
            let mut head = head.clone();
            head.set_tokens(tokens);
            return Ok((head, tokens.clone(), 0));
        }
        // in the target's own encoding
        let (head, tokens) = DraftHead::trimmed(&target.weights, vocab.clone(), (CONTEXT_VOCAB, true))?;
        self.trimmed = Some((head.clone(), tokens.clone()));
        let bytes = head.bytes();
        Ok((head, tokens, bytes))
    }
}

impl NativeModule {
    /// The module of this index in the files of a target.
    ///
    /// # Errors
    /// When a tensor is missing, misshapen or damaged.
    pub(crate) fn own(
        target: &ModuleTarget,
        (source, config, of): Files<'_>,
        (index, plan): (usize, &DraftPlan),
        heads: &mut OwnHeads,
    ) -> Result<Self, ModelError> {
        let cpu = &target.weights.cpu;
        let [before, all] = [index, index + 1].map(|count| tiled_bytes(source, (config.layers, count), true));
        cpu.expect(all.saturating_sub(before));
        let plan = plan.without_copies(source, of)?;
        let head = match &plan.head {
            // one of a module's own is not kept whole beside its rows
            Some(head) => {
                let (shape, angles) = (target.weights.shape, std::slice::from_ref(&plan.angles));
                let loader = Loader { tensors: Tensors(source), cpu, shape, angles, norms_as_stored: true };
                DraftHead::own(&target.weights, loader.matrix(head)?, heads.vocab.as_deref())?
            }
            None => heads.of_target(target)?,
        };
        Self::load(target, (source, &plan), head)
    }
}
