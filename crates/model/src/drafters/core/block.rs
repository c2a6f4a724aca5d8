//! The transformer block of a draft module on candle.

use candle_core::{Device, Tensor};

use crate::ModelError;
use crate::drafters::core::shape::MtpShape;
use crate::nn::{Block, BlockPass, KvCache, LayerWeights};
use crate::reference::{Layer, Memory, Pass};

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

impl MtpBlock for Layer {
    fn forward(&self, x: &Tensor, pass: BlockPass<'_>, cache: &mut KvCache) -> Result<Tensor, ModelError> {
        let rope = self.rotation().is_some().then_some(pass.rope);
        let pass = Pass { rope, rows: pass.rows, at: pass.at.unwrap_or(pass.rows.start()) };
        Self::forward(self, x, None, pass, Memory::Cache(cache))
    }

    fn shifted(&self, by: f64) -> Result<Box<dyn MtpBlock>, ModelError> {
        Ok(Box::new(Self::shifted(self, by)?))
    }

    fn cache(&self, shape: &MtpShape, device: &Device) -> Result<KvCache, ModelError> {
        let lacking = || ModelError::Unsupported("a draft module whose layer does not attend".into());
        Self::cache(self, shape.ctx_len, (device, shape.form)).ok_or_else(lacking)?
    }
}
