//! Loading a Gemma 4.

use std::sync::Arc;

use crate::model::families::gemma4::config::Gemma4Config;
use crate::model::families::gemma4::{Gemma4, Gemma4Weights};
use crate::model::interfaces::{Backend, LoadContext, LoadedTarget, Modules, NoSharing, Progress, SharedWeights};
use crate::model::{Model, ModelError, ModelSpec};

/// Loads the target.
pub(super) fn target(
    config: &Gemma4Config,
    context: &LoadContext<'_>,
    backend: &Backend<'_>,
    progress: &mut Progress<'_>,
) -> Result<Box<dyn LoadedTarget>, ModelError> {
    let (matmul, dtype, device) = context.matmul(backend);
    let spec = context.spec(&matmul, &dtype, device);
    let mut on_block = |done: usize, total: usize| progress("target", done as u64, total as u64);
    let weights = Gemma4Weights::load((context.source, config), context.ctx_len, (matmul, device), &mut on_block)?;
    Ok(Box::new(Target { weights: Arc::new(weights), spec }))
}

/// A loaded Gemma 4.
pub(super) struct Target {
    /// Its weights, which an assistant shares.
    pub(super) weights: Arc<Gemma4Weights>,
    spec: ModelSpec,
}

impl LoadedTarget for Target {
    fn own_modules(&self, context: &LoadContext<'_>) -> Option<Result<Modules, ModelError>> {
        Some(Err(ModelError::Unsupported(format!(
            "{} brings no drafter; name its assistant with --draft-model",
            context.source.file_name()
        ))))
    }

    fn shared(&self) -> Result<SharedWeights<'_>, NoSharing> {
        Err(NoSharing {
            family: "a Gemma 4",
            instead_of_head: "name its assistant with --draft-model",
            instead_of_module: "has an assistant, so name that with --draft-model and leave --mtp out",
        })
    }

    fn into_model(self: Box<Self>) -> Result<Box<dyn Model>, ModelError> {
        Ok(Box::new(Gemma4::new(self.weights, self.spec)?))
    }
}
