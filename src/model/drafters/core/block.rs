//! The transformer block of a draft module on candle.

use candle_core::{Device, Tensor};

use crate::model::ModelError;
use crate::model::drafters::core::MtpShape;
use crate::model::nn::block::{Block, Place};
use crate::model::nn::config::TransformerConfig;
use crate::model::nn::kv_cache::KvCache;

/// A block that a module runs between its projection and its last norm.
pub trait MtpBlock: Send + Sync {
    /// Runs `m` slots behind the cache and appends them to it: `[m, d] -> [m, d]`.
    ///
    /// # Errors
    /// When the cache is full or shapes do not fit.
    fn forward(&self, x: &Tensor, place: Place<'_>, cache: &mut KvCache) -> Result<Tensor, ModelError>;

    /// The same block with so much more weight in all its norms.
    ///
    /// # Errors
    /// When memory is short.
    fn shifted(&self, by: f64) -> Result<Box<dyn MtpBlock>, ModelError>;

    /// Bytes the matrices take in memory.
    fn bytes(&self) -> u64;

    /// An empty cache of this shape.
    ///
    /// # Errors
    /// When memory is short.
    fn cache(&self, shape: &MtpShape, device: &Device) -> Result<KvCache, ModelError> {
        KvCache::new(shape.kv_heads, shape.ctx_len, shape.head_dim, device)
    }
}

/// A Llama block as a module's.
pub struct LlamaBlock {
    pub(in crate::model) block: Block,
    pub(in crate::model) config: TransformerConfig,
}

impl MtpBlock for LlamaBlock {
    fn forward(&self, x: &Tensor, place: Place<'_>, cache: &mut KvCache) -> Result<Tensor, ModelError> {
        self.block.forward(x, &self.config, place, cache)
    }

    fn shifted(&self, by: f64) -> Result<Box<dyn MtpBlock>, ModelError> {
        let mut block = self.block.clone();
        block.attn_norm = block.attn_norm.shifted(by)?;
        block.ffn_norm = block.ffn_norm.shifted(by)?;
        if let Some([of_q, of_k]) = block.head_norms {
            block.head_norms = Some([of_q.shifted(by)?, of_k.shifted(by)?]);
        }
        Ok(Box::new(Self { block, config: self.config.clone() }))
    }

    fn bytes(&self) -> u64 {
        self.block.bytes()
    }
}
