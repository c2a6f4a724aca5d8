//! Loading a Gemma 3.

use std::sync::Arc;

use crate::model::families::gemma3::config::Gemma3Config;
use crate::model::families::gemma3::{Gemma3, Gemma3Weights};
use crate::model::interfaces::{Backend, LoadContext, LoadedTarget, Modules, NoSharing, Progress, SharedWeights};
use crate::model::{Model, ModelError, ModelSpec};

/// Loads the target.
pub(super) fn target(
    config: &Gemma3Config,
    context: &LoadContext<'_>,
    backend: &Backend<'_>,
    progress: &mut Progress<'_>,
) -> Result<Box<dyn LoadedTarget>, ModelError> {
    let (matmul, dtype, device) = context.matmul(backend);
    let spec = context.spec(&matmul, &dtype, device);
    let mut on_block = |done: usize, total: usize| progress("target", done as u64, total as u64);
    let weights = Gemma3Weights::load((context.source, config), context.ctx_len, (matmul, device), &mut on_block)?;
    Ok(Box::new(Target { weights: Arc::new(weights), spec }))
}

struct Target {
    weights: Arc<Gemma3Weights>,
    spec: ModelSpec,
}

impl LoadedTarget for Target {
    fn own_modules(&self, context: &LoadContext<'_>) -> Option<Result<Modules, ModelError>> {
        Some(Err(ModelError::Unsupported(format!(
            "{} brings no draft module; choose --drafter ngram or early-exit, or name a smaller Gemma 3 with --draft-model",
            context.source.file_name()
        ))))
    }

    fn shared(&self) -> Result<SharedWeights<'_>, NoSharing> {
        Err(NoSharing {
            family: "a Gemma 3",
            instead_of_head: "name a smaller Gemma 3 with --draft-model",
            instead_of_module: "has none, so leave --mtp out",
        })
    }

    fn into_model(self: Box<Self>) -> Result<Box<dyn Model>, ModelError> {
        Ok(Box::new(Gemma3::new(self.weights, self.spec)?))
    }
}
