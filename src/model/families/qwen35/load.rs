//! Loading a Qwen3.5 and the draft module in its files.

use std::sync::Arc;

use crate::model::drafters::core;
use crate::model::families::qwen35::config::Qwen35Config;
use crate::model::families::qwen35::module::load_module;
use crate::model::families::qwen35::{Qwen35, Qwen35Weights};
use crate::model::interfaces::{Backend, LoadContext, LoadedTarget, Modules, NoSharing, Progress, SharedWeights};
use crate::model::nn::matmul_backend::MatmulBackend;
use crate::model::options::Rollback;
use crate::model::{Model, ModelError, ModelSpec};

/// Loads the target.
pub(super) fn target(
    config: &Qwen35Config,
    context: &LoadContext<'_>,
    backend: &Backend<'_>,
    progress: &mut Progress<'_>,
) -> Result<Box<dyn LoadedTarget>, ModelError> {
    let (matmul, dtype, device) = context.matmul(backend);
    let spec = context.spec(&matmul, &dtype, device);
    let mut on_block = |done: usize, total: usize| progress("target", done as u64, total as u64);
    let from = (context.source, config);
    let weights = Qwen35Weights::load(from, context.ctx_len, (matmul.clone(), device), &mut on_block)?;
    let (weights, rollback) = (Arc::new(weights), context.options.rollback);
    Ok(Box::new(Target { weights, spec, matmul, rollback, announced: config.hybrid.announces_mtp }))
}

struct Target {
    weights: Arc<Qwen35Weights>,
    spec: ModelSpec,
    matmul: MatmulBackend,
    rollback: Rollback,
    announced: bool,
}

impl Target {
    fn module(&self, context: &LoadContext<'_>) -> Result<Modules, ModelError> {
        let source = context.source;
        let weights = (&self.weights, context.ctx_len);
        let Some(module) = load_module(source, self.matmul.clone(), weights, context.draft_vocab()?)? else {
            return Err(ModelError::Unsupported(match self.announced {
                true => format!("{} announces an MTP module and holds no tensor of it", source.file_name()),
                false => format!("{} brings no MTP module", source.file_name()),
            }));
        };
        Ok(core::modules(vec![module], format!("{} (own module)", source.name()), &self.spec.dtype))
    }
}

impl LoadedTarget for Target {
    fn own_modules(&self, context: &LoadContext<'_>) -> Option<Result<Modules, ModelError>> {
        Some(self.module(context))
    }

    fn shared(&self) -> Result<SharedWeights<'_>, NoSharing> {
        Err(NoSharing {
            family: "a Qwen3.5",
            instead_of_head: "start without --draft-model, and its own module drafts",
            instead_of_module: "brings its own, so start without --mtp",
        })
    }

    fn into_model(self: Box<Self>) -> Result<Box<dyn Model>, ModelError> {
        Ok(Box::new(Qwen35::new(self.weights, self.spec, self.rollback)?))
    }
}
