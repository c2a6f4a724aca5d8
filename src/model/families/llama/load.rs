//! Loading a target of Llama's layout: whole passes on the native kernels, or candle.

use std::sync::Arc;

use crate::model::families::llama::mimo;
use crate::model::interfaces::{
    Backend, CandleTarget, LoadContext, LoadResult, LoadedTarget, Modules, NoSharing, Progress, SharedWeights, TryOut,
    try_out,
};
use crate::model::native::NativeLlama;
use crate::model::nn::{TransformerConfig, TransformerModel};
use crate::model::plan::Plan;
use crate::model::reference::Weights;
use crate::model::{Model, ModelError};

/// Loads a target whose configuration announces so many draft modules.
pub(super) fn target(
    (config, plan, announced): (&TransformerConfig, &Plan, usize),
    context: &LoadContext<'_>,
    backend: &Backend<'_>,
    progress: &mut Progress<'_>,
) -> LoadResult {
    let LoadContext { options, source, ctx_len, .. } = *context;
    if matches!(backend, Backend::Native) {
        let mut on_layer = |done: usize, total: usize| progress("target", done as u64, total as u64);
        let from = (source, config, plan);
        let mut target = NativeLlama::load_reporting((from, ctx_len), options.threads, &mut on_layer)?;
        target.set_sha256(options.sha256.clone());
        return Ok(Box::new(OnNative { target, announced }));
    }
    let (tensors, spec) = context.on_candle(backend);
    let weights = Arc::new(Weights::load(tensors, plan, ctx_len, progress)?);
    Ok(Box::new(OnCandle { target: CandleTarget { weights, spec }, announced }))
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

    fn try_out(&mut self, run: &mut TryOut<'_>) -> Result<(), ModelError> {
        try_out(&mut self.target, run)
    }

    fn into_model(self: Box<Self>) -> Result<Box<dyn Model>, ModelError> {
        Ok(Box::new(self.target))
    }
}

/// A target on candle.
struct OnCandle {
    target: CandleTarget<Weights>,
    announced: usize,
}

impl LoadedTarget for OnCandle {
    fn own_modules(&self, context: &LoadContext<'_>) -> Option<Result<Modules, ModelError>> {
        (self.announced > 0).then(|| mimo::candle(context, self.announced, &self.target))
    }

    fn shared(&self) -> Result<SharedWeights<'_>, NoSharing> {
        Ok(SharedWeights::Candle(Arc::clone(&self.target.weights.trunk) as _, self.target.spec.ctx_len))
    }

    fn try_out(&mut self, run: &mut TryOut<'_>) -> Result<(), ModelError> {
        run(&mut TransformerModel::new(Arc::clone(&self.target.weights), self.target.spec.clone())?)
    }

    fn into_model(self: Box<Self>) -> Result<Box<dyn Model>, ModelError> {
        Ok(Box::new(TransformerModel::new(self.target.weights, self.target.spec)?))
    }
}
