//! The transformer block of a draft module on candle.

use candle_core::{Device, Tensor};

use crate::ModelError;
use crate::drafters::core::MtpShape;
use crate::nn::{Block, BlockPass, KvCache, LayerWeights};

/// A block that a module runs between its projection and its last norm.
pub trait MtpBlock: LayerWeights {
    /// Runs `m` slots after the cache and appends them to it: `[m, d] -> [m, d]`.
    ///
    /// # Errors
    /// If the cache is full or shapes do not fit.
    fn forward(&self, x: &Tensor, pass: BlockPass<'_>, cache: &mut KvCache) -> Result<Tensor, ModelError>;

    /// A copy whose norms all have this added to their weights.
    ///
    /// # Errors
    /// If memory is short.
    fn shifted(&self, by: f64) -> Result<Box<dyn MtpBlock>, ModelError>;

    /// An empty cache of this shape.
    ///
    /// # Errors
    /// If memory is short.
    fn cache(&self, shape: &MtpShape, device: &Device) -> Result<KvCache, ModelError> {
        KvCache::new(shape.kv_heads, shape.ctx_len, shape.head_dim, (device, shape.form))
    }
}

impl MtpBlock for Block {
    fn forward(&self, x: &Tensor, pass: BlockPass<'_>, cache: &mut KvCache) -> Result<Tensor, ModelError> {
        Self::forward(self, x, pass, cache)
    }

    fn shifted(&self, by: f64) -> Result<Box<dyn MtpBlock>, ModelError> {
        Ok(Box::new(Self::shifted(self, by)?))
    }
}
