//! Loading a Qwen3.5 or Qwen3-Next and the draft module in its files.

use std::sync::Arc;

use crate::drafters::core;
use crate::families::qwen35::{
    Qwen35, Qwen35Weights,
    config::Qwen35Config,
    module::{load_module, no_module},
    names::article,
};
use crate::interfaces::{
    Backend, LoadContext, LoadResult, LoadedTarget, Modules, NoSharing, Progress, SharedWeights, TryOut,
};
use crate::nn::TransformerConfig;
use crate::options::Rollback;
use crate::{Model, ModelError, ModelSpec};

/// Loads the target.
pub(super) fn target(
    config: &Qwen35Config,
    context: &LoadContext<'_>,
    backend: &Backend<'_>,
    progress: &mut Progress<'_>,
) -> LoadResult {
    let (tensors, spec) = context.on_candle(backend);
    let weights = Arc::new(Qwen35Weights::load(tensors, &config.hybrid, context.ctx_len, progress)?);
    Ok(Box::new(Target { weights, spec, rollback: context.options.rollback.unwrap_or_default() }))
}

/// Why modules of other targets do not run beside it.
pub(super) fn no_sharing(config: &TransformerConfig) -> NoSharing {
    NoSharing {
        family: article(config),
        instead_of_head: "start without --draft-model, and its own module drafts",
        instead_of_module: "brings its own, so start without --mtp",
    }
}

struct Target {
    weights: Arc<Qwen35Weights>,
    spec: ModelSpec,
    rollback: Rollback,
}

impl Target {
    fn module(&self, context: &LoadContext<'_>) -> Result<Modules, ModelError> {
        let source = context.source;
        let module = load_module(context, &self.weights)?;
        let module = module.ok_or_else(|| no_module(source, &self.weights.hybrid))?;
        Ok(core::modules(vec![module], format!("{} (own module)", source.name()), &self.spec.dtype))
    }
}

impl LoadedTarget for Target {
    fn own_modules(&self, context: &LoadContext<'_>) -> Option<Result<Modules, ModelError>> {
        Some(self.module(context))
    }

    fn shared(&self) -> Result<SharedWeights<'_>, NoSharing> {
        Err(no_sharing(&self.weights.trunk.config))
    }

    fn embedding_and_head(&self) -> Result<SharedWeights<'_>, NoSharing> {
        Ok(SharedWeights::Candle(Arc::clone(&self.weights.trunk) as _, self.spec.ctx_len))
    }

    fn try_out(&mut self, run: &mut TryOut<'_>) -> Result<(), ModelError> {
        run(&mut Qwen35::new(Arc::clone(&self.weights), self.spec.clone(), self.rollback)?)
    }

    fn into_model(self: Box<Self>) -> Result<Box<dyn Model>, ModelError> {
        Ok(Box::new(Qwen35::new(self.weights, self.spec, self.rollback)?))
    }
}
