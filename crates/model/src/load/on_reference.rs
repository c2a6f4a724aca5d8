//! A target on the reference, and the draft modules in its files.

use std::sync::Arc;

use crate::drafters::core;
use crate::interfaces::{Backend, LoadContext, LoadedTarget, Modules, NoSharing, Progress, SharedWeights, TryOut};
use crate::options::Rollback;
use crate::plan::DraftPlan;
use crate::reference::{ReferenceModel, Weights};
use crate::{Model, ModelError, ModelSpec};

/// A loaded target.
pub(super) struct OnReference {
    weights: Arc<Weights>,
    spec: ModelSpec,
    rollback: Rollback,
    /// Whether embeddings and logits are those of the tables, neither scaled nor capped.
    has_plain_ends: bool,
    /// Why modules made for targets of the Llama kind do not run beside it; `None` if they do.
    no_sharing: Option<NoSharing>,
}

impl OnReference {
    /// Loads it as its plan says, or only checks its tensors.
    pub(super) fn load(
        context: &LoadContext<'_>,
        backend: &Backend<'_>,
        progress: &mut Progress<'_>,
    ) -> Result<Self, ModelError> {
        let LoadContext { options, source, config, ctx_len, .. } = *context;
        let (tensors, spec) = context.on_candle(backend);
        let weights = Arc::new(Weights::load(tensors, config.plan(), ctx_len, progress)?);
        let rollback = options.rollback.unwrap_or_default();
        let (has_plain_ends, no_sharing) = (config.plan().has_plain_ends(), config.drafting(source).no_sharing);
        Ok(Self { weights, spec, rollback, has_plain_ends, no_sharing })
    }

    fn modules(&self, context: &LoadContext<'_>, plans: &[DraftPlan]) -> Result<Modules, ModelError> {
        core::reference_modules(context, (&self.weights.trunk, &self.spec.dtype), plans)
    }

    fn ends(&self) -> SharedWeights<'_> {
        SharedWeights::Candle(Arc::clone(&self.weights.trunk) as _, self.spec.ctx_len)
    }
}

impl LoadedTarget for OnReference {
    fn own_modules(&self, context: &LoadContext<'_>) -> Option<Result<Modules, ModelError>> {
        let plans = context.config.drafting(context.source).own?;
        Some(plans.and_then(|plans| self.modules(context, &plans)))
    }

    fn shared(&self) -> Result<SharedWeights<'_>, NoSharing> {
        self.no_sharing.clone().map_or_else(|| Ok(self.ends()), Err)
    }

    fn embedding_and_head(&self) -> Result<SharedWeights<'_>, NoSharing> {
        if self.has_plain_ends { Ok(self.ends()) } else { self.shared() }
    }

    fn try_out(&mut self, run: &mut TryOut<'_>) -> Result<(), ModelError> {
        run(&mut ReferenceModel::new(Arc::clone(&self.weights), self.spec.clone(), self.rollback)?)
    }

    fn into_model(self: Box<Self>) -> Result<Box<dyn Model>, ModelError> {
        Ok(Box::new(ReferenceModel::new(self.weights, self.spec, self.rollback)?))
    }
}
