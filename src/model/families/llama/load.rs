//! Loading a target of Llama's layout: whole passes on the native kernels, or candle.

use std::sync::Arc;

use crate::model::families::llama::config::LlamaConfig;
use crate::model::families::llama::{Llama, LlamaWeights, mimo};
use crate::model::interfaces::{Backend, LoadContext, LoadedTarget, Modules, NoSharing, Progress, SharedWeights};
use crate::model::native::NativeLlama;
use crate::model::{Model, ModelError, ModelSpec};

/// Loads the target.
pub(super) fn target(
    config: &LlamaConfig,
    context: &LoadContext<'_>,
    backend: &Backend<'_>,
    progress: &mut Progress<'_>,
) -> Result<Box<dyn LoadedTarget>, ModelError> {
    let LoadContext { options, source, ctx_len, .. } = *context;
    let announced = config.announced;
    let Backend::Candle(weight_type, ..) = backend else {
        progress("target", 0, 1);
        let mut target = NativeLlama::load((source, &config.transformer), ctx_len, options.threads)?;
        target.set_sha256(options.sha256.clone());
        return Ok(Box::new(OnNative { target, announced }));
    };
    let (matmul, dtype, device) = context.matmul(backend);
    let spec = context.spec(&matmul, &dtype, device);
    let mut on_block = |done: usize, total: usize| progress("target", done as u64, total as u64);
    let weights = LlamaWeights::load(source, &config.transformer, ctx_len, *weight_type, device, &mut on_block)?;
    Ok(Box::new(OnCandle { weights: Arc::new(weights), spec, weight_type: *weight_type, announced }))
}

/// A target on the native kernels.
struct OnNative {
    target: NativeLlama,
    announced: usize,
}

impl LoadedTarget for OnNative {
    fn own_modules(&self, context: &LoadContext<'_>) -> Option<Result<Modules, ModelError>> {
        (self.announced > 0).then(|| mimo::native(context, self.announced, &self.target))
    }

    fn shared(&self) -> Result<SharedWeights<'_>, NoSharing> {
        Ok(SharedWeights::Native(&self.target))
    }

    fn into_model(self: Box<Self>) -> Result<Box<dyn Model>, ModelError> {
        Ok(Box::new(self.target))
    }
}

/// A target on candle.
struct OnCandle {
    weights: Arc<LlamaWeights>,
    spec: ModelSpec,
    weight_type: crate::model::options::WeightType,
    announced: usize,
}

impl LoadedTarget for OnCandle {
    fn own_modules(&self, context: &LoadContext<'_>) -> Option<Result<Modules, ModelError>> {
        let load = || mimo::candle(context, self.announced, &self.weights, (self.weight_type, &self.spec.dtype));
        (self.announced > 0).then(load)
    }

    fn shared(&self) -> Result<SharedWeights<'_>, NoSharing> {
        Ok(SharedWeights::Candle(Arc::clone(&self.weights) as _, self.spec.ctx_len))
    }

    fn into_model(self: Box<Self>) -> Result<Box<dyn Model>, ModelError> {
        Ok(Box::new(Llama::new(self.weights, self.spec)?))
    }
}
