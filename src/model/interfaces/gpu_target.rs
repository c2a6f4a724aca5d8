//! A target on the GPU of a family that brings its own draft modules, or none.

use crate::model::gpu::GpuLlama;
use crate::model::interfaces::{LoadContext, LoadedTarget, Modules, NoSharing, SharedWeights, TryOut, try_out};
use crate::model::{Model, ModelError};

/// Loads the draft modules in the files of a target on the GPU.
type OwnGpuModules = Box<dyn Fn(&GpuLlama, &LoadContext<'_>) -> Result<Modules, ModelError>>;

/// A target on the GPU beside which no modules made for targets of the Llama kind run.
pub(in crate::model) struct GpuTarget {
    pub(in crate::model) model: GpuLlama,
    /// As [`LoadedTarget::own_modules`].
    pub(in crate::model) own_modules: OwnGpuModules,
    /// Why they do not run beside it.
    pub(in crate::model) no_sharing: NoSharing,
}

impl LoadedTarget for GpuTarget {
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

    fn self_test(&mut self) -> Result<Option<String>, ModelError> {
        self.model.self_test()
    }
}
