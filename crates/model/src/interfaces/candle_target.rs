//! A target on candle whose passes are those of every stack of layers.

use std::sync::Arc;

use crate::interfaces::{LoadContext, LoadedTarget, Modules, NoSharing, SharedWeights, TryOut};
use crate::nn::{Transformer, TransformerModel};
use crate::{Model, ModelError, ModelSpec};

/// A target on candle whose passes are those of every [`Transformer`].
pub struct CandleTarget<W> {
    /// Its weights, which drafters share.
    pub weights: Arc<W>,
    /// What it is.
    pub spec: ModelSpec,
}

/// What drafters get from a family's weights on candle.
pub trait CandleFamily: Transformer + Sized + 'static {
    /// As [`LoadedTarget::own_modules`].
    fn own_modules(target: &CandleTarget<Self>, context: &LoadContext<'_>) -> Option<Result<Modules, ModelError>>;

    /// As [`LoadedTarget::shared`].
    ///
    /// # Errors
    /// As there.
    fn shared(target: &CandleTarget<Self>) -> Result<SharedWeights<'_>, NoSharing>;
}

impl<W: CandleFamily> LoadedTarget for CandleTarget<W> {
    fn own_modules(&self, context: &LoadContext<'_>) -> Option<Result<Modules, ModelError>> {
        W::own_modules(self, context)
    }

    fn shared(&self) -> Result<SharedWeights<'_>, NoSharing> {
        W::shared(self)
    }

    fn try_out(&mut self, run: &mut TryOut<'_>) -> Result<(), ModelError> {
        run(&mut TransformerModel::new(Arc::clone(&self.weights), self.spec.clone())?)
    }

    fn into_model(self: Box<Self>) -> Result<Box<dyn Model>, ModelError> {
        Ok(Box::new(TransformerModel::new(self.weights, self.spec)?))
    }
}
