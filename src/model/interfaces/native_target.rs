//! A target on the native kernels, whatever its family.

use crate::model::interfaces::{
    LoadContext, LoadResult, LoadedTarget, Modules, NoSharing, Progress, SharedWeights, TryOut, try_out,
};
use crate::model::native::NativeLlama;
use crate::model::{Model, ModelError};

/// Loads the draft modules in the files of a target; `None` if the family never has any.
type OwnModules = fn(&NativeLlama, &LoadContext<'_>) -> Option<Result<Modules, ModelError>>;

/// A target on the native kernels.
pub(in crate::model) struct NativeTarget {
    model: NativeLlama,
    own_modules: OwnModules,
    /// Why modules made for targets of the Llama kind do not run beside it; `None` if they do.
    no_sharing: Option<NoSharing>,
}

impl NativeTarget {
    /// Loads it as its plan says.
    ///
    /// # Errors
    /// When a tensor is missing, misshapen or damaged, or the backend lacks a part of the plan.
    pub(in crate::model) fn load(
        context: &LoadContext<'_>,
        progress: &mut Progress<'_>,
        own_modules: OwnModules,
    ) -> LoadResult {
        let LoadContext { options, source, config, ctx_len, .. } = *context;
        let from = (source, config.transformer(), config.plan());
        let mut on_layer = |done: usize, total: usize| progress("target", done as u64, total as u64);
        let mut model = NativeLlama::load_reporting((from, ctx_len), options.threads, &mut on_layer)?;
        model.set_sha256(options.sha256.clone());
        model.set_rollback(options.rollback.unwrap_or_default());
        Ok(Box::new(Self { model, own_modules, no_sharing: config.drafting(source).no_sharing }))
    }
}

impl LoadedTarget for NativeTarget {
    fn own_modules(&self, context: &LoadContext<'_>) -> Option<Result<Modules, ModelError>> {
        (self.own_modules)(&self.model, context)
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

    fn try_out(&mut self, run: &mut TryOut<'_>) -> Result<(), ModelError> {
        try_out(&mut self.model, run)
    }

    fn into_model(self: Box<Self>) -> Result<Box<dyn Model>, ModelError> {
        Ok(Box::new(self.model))
    }
}
