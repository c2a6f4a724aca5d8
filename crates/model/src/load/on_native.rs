//! A target whose whole passes run on the native kernels, and the draft modules in its files.

use crate::drafters::core;
use crate::interfaces::{LoadContext, LoadedTarget, Modules, NoSharing, Progress, SharedWeights, TryOut, try_out};
use crate::native::{ModuleTarget, NativeLlama, NativeModule, OwnHeads};
use crate::plan::DraftPlan;
use crate::{Model, ModelError};

/// A loaded target.
pub(super) struct OnNative {
    model: NativeLlama,
    /// Why modules made for targets of the Llama kind do not run beside it; `None` if they do.
    no_sharing: Option<NoSharing>,
}

impl OnNative {
    /// Loads it as its plan says.
    pub(super) fn load(context: &LoadContext<'_>, progress: &mut Progress<'_>) -> Result<Self, ModelError> {
        let LoadContext { options, source, config, ctx_len, .. } = *context;
        let from = (source, config.transformer(), config.plan());
        let mut on_layer = |done: usize, total: usize| progress("target", done as u64, total as u64);
        let mut model = NativeLlama::load_reporting((from, ctx_len), options.threads, &mut on_layer)?;
        model.set_sha256(options.sha256.clone());
        model.set_rollback(options.rollback.unwrap_or_default());
        Ok(Self { model, no_sharing: config.drafting(source).no_sharing })
    }

    fn modules(&self, context: &LoadContext<'_>, plans: &[DraftPlan]) -> Result<Modules, ModelError> {
        let LoadContext { source, config, .. } = *context;
        let mut heads = OwnHeads::new(if config.trims_draft_vocab(false) { context.draft_vocab()? } else { None });
        let files = (source, config.transformer(), config.plan());
        let target = ModuleTarget::of(&self.model);
        let load = |plan| NativeModule::own(&target, files, plan, &mut heads);
        let modules = plans.iter().enumerate().map(load).collect::<Result<Vec<_>, _>>()?;
        let name = core::name_of_own(source, modules.len());
        Ok(core::modules(modules, name, &self.model.spec().dtype))
    }
}

impl LoadedTarget for OnNative {
    fn own_modules(&self, context: &LoadContext<'_>) -> Option<Result<Modules, ModelError>> {
        let plans = context.config.drafting(context.source).own?;
        Some(plans.and_then(|plans| self.modules(context, &plans)))
    }

    fn shared(&self) -> Result<SharedWeights<'_>, NoSharing> {
        self.no_sharing.clone().map_or(Ok(SharedWeights::Native(&self.model)), Err)
    }

    fn embedding_and_head(&self) -> Result<SharedWeights<'_>, NoSharing> {
        match self.model.has_plain_ends() {
            true => Ok(SharedWeights::Native(&self.model)),
            false => self.shared(),
        }
    }

    fn lends_keys(&self) -> Option<&NativeLlama> {
        Some(&self.model)
    }

    fn try_out(&mut self, run: &mut TryOut<'_>) -> Result<(), ModelError> {
        try_out(&mut self.model, run)
    }

    fn into_model(self: Box<Self>) -> Result<Box<dyn Model>, ModelError> {
        Ok(Box::new(self.model))
    }
}
