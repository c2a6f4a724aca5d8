//! Loading a target of Llama's layout for candle.

use std::sync::Arc;

use crate::families::llama::mimo;
use crate::interfaces::{
    Backend, CandleTarget, LoadContext, LoadResult, LoadedTarget, Modules, NoSharing, Progress, SharedWeights, TryOut,
};
use crate::nn::TransformerModel;
use crate::reference::Weights;
use crate::{Model, ModelError};

/// Loads a target whose configuration announces so many draft modules.
pub(super) fn target(
    announced: usize,
    context: &LoadContext<'_>,
    backend: &Backend<'_>,
    progress: &mut Progress<'_>,
) -> LoadResult {
    let (tensors, spec) = context.on_candle(backend);
    let weights = Arc::new(Weights::load(tensors, context.config.plan(), context.ctx_len, progress)?);
    Ok(Box::new(OnCandle { target: CandleTarget { weights, spec }, announced }))
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
