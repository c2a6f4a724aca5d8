//! A target on the GPU, and the draft modules in its files.

use crate::draft_tokens::CONTEXT_VOCAB;
use crate::drafters::core;
use crate::files::TensorSource;
use crate::gpu::{GpuTarget, module::GpuModule};
use crate::interfaces::{LoadContext, LoadedTarget, Modules, NoSharing, SharedWeights, TryOut, try_out};
use crate::plan::DraftPlan;
use crate::{Model, ModelError};

/// A loaded target.
pub(super) struct OnGpu {
    pub(super) model: GpuTarget,
    /// Why modules made for targets of the Llama kind do not run beside it; `None` if they do.
    pub(super) no_sharing: Option<NoSharing>,
}

impl OnGpu {
    fn modules(&self, context: &LoadContext<'_>, plans: &[DraftPlan]) -> Result<Modules, ModelError> {
        let LoadContext { source, config, .. } = *context;
        let vocab = if config.trims_draft_vocab(false) { context.draft_vocab()? } else { None };
        let vocab = vocab.as_deref().map(|vocab| (vocab, CONTEXT_VOCAB));
        let load = |plan| GpuModule::load(&self.model, (source as &dyn TensorSource, plan), vocab);
        let modules = plans.iter().map(load).collect::<Result<Vec<_>, _>>()?;
        Ok(core::modules(modules, format!("{} (its own module)", source.name()), &self.model.spec().dtype))
    }
}

impl LoadedTarget for OnGpu {
    fn own_modules(&self, context: &LoadContext<'_>) -> Option<Result<Modules, ModelError>> {
        let plans = context.config.drafting(context.source).own?;
        Some(plans.and_then(|plans| self.modules(context, &plans)))
    }

    fn shared(&self) -> Result<SharedWeights<'_>, NoSharing> {
        self.no_sharing.clone().map_or(Ok(SharedWeights::Gpu(&self.model)), Err)
    }

    fn try_out(&mut self, run: &mut TryOut<'_>) -> Result<(), ModelError> {
        try_out(&mut self.model, run)
    }

    fn into_model(self: Box<Self>) -> Result<Box<dyn Model>, ModelError> {
        Ok(Box::new(self.model))
    }

    fn self_test(&mut self) -> Result<Option<String>, ModelError> {
        self.model.self_test()
    }
}
