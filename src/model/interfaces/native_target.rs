//! A target on the native kernels of a family that brings its own draft modules, or none.

use crate::model::interfaces::{
    LoadContext, LoadResult, LoadedTarget, Modules, NoSharing, Progress, SharedWeights, TryOut, try_out,
};
use crate::model::native::NativeLlama;
use crate::model::{Model, ModelError};

/// Loads the draft modules in the files of a target.
type OwnModules = Box<dyn Fn(&NativeLlama, &LoadContext<'_>) -> Result<Modules, ModelError>>;

/// A target on the native kernels beside which no modules made for targets of the Llama kind run.
pub(in crate::model) struct NativeTarget {
    model: NativeLlama,
    own_modules: OwnModules,
    no_sharing: NoSharing,
}

impl NativeTarget {
    /// Loads it as its plan says; the other arguments are what [`LoadedTarget::own_modules`] and
    /// [`LoadedTarget::shared`] return.
    ///
    /// # Errors
    /// When a tensor is missing, misshapen or damaged, or the backend lacks a part of the plan.
    pub(in crate::model) fn load(
        context: &LoadContext<'_>,
        progress: &mut Progress<'_>,
        (own_modules, no_sharing): (OwnModules, NoSharing),
    ) -> LoadResult {
        let LoadContext { options, source, config, ctx_len, .. } = *context;
        let from = (source, config.transformer(), config.plan());
        let mut on_layer = |done: usize, total: usize| progress("target", done as u64, total as u64);
        let mut model = NativeLlama::load_reporting((from, ctx_len), options.threads, &mut on_layer)?;
        model.set_sha256(options.sha256.clone());
        Ok(Box::new(Self { model, own_modules, no_sharing }))
    }
}

impl LoadedTarget for NativeTarget {
    fn own_modules(&self, context: &LoadContext<'_>) -> Option<Result<Modules, ModelError>> {
        Some((self.own_modules)(&self.model, context))
    }

    fn shared(&self) -> Result<SharedWeights<'_>, NoSharing> {
        Err(self.no_sharing.clone())
    }

    fn try_out(&mut self, run: &mut TryOut<'_>) -> Result<(), ModelError> {
        try_out(&mut self.model, run)
    }

    fn into_model(self: Box<Self>) -> Result<Box<dyn Model>, ModelError> {
        Ok(Box::new(self.model))
    }
}
