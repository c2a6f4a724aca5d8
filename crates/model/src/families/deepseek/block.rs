//! A layer of DeepSeek-V3: latent attention, then a feed-forward layer, dense or of experts, each after an RMSNorm
//! and added to the residual stream. Activations are f32 whatever the dtype of the weights.

use candle_core::{Device, Tensor};

use crate::drafters::core::{MtpBlock, MtpShape};
use crate::families::deepseek::attention::LatentAttention;
use crate::nn::{BlockPass, FeedForward, KvCache, LayerWeights, RmsNorm};
use crate::options::PassForm;
use crate::{ExpertsMet, ModelError};

/// One layer.
#[derive(Clone, Debug)]
pub struct Layer {
    pub(super) attention_norm: RmsNorm,
    pub(super) attention: LatentAttention,
    pub(super) ffn_norm: RmsNorm,
    pub(super) ffn: FeedForward,
}

impl Layer {
    /// Runs `m` rows after the cached ones: `[m, d] -> [m, d]`.
    pub(super) fn forward(&self, x: &Tensor, pass: BlockPass<'_>, cache: &mut KvCache) -> Result<Tensor, ModelError> {
        let x = (x + self.attention.forward(&self.attention_norm.forward(x)?, pass, cache)?)?;
        let answer = self.ffn.forward(&self.ffn_norm.forward(&x)?)?;
        Ok((x + answer)?)
    }

    /// An empty cache for `ctx` positions.
    pub(super) fn cache(&self, ctx: usize, on: (&Device, PassForm)) -> Result<KvCache, ModelError> {
        let shape = &self.attention.shape;
        KvCache::latent(ctx, (shape.rank + shape.rotary, shape.rank), on)
    }
}

impl LayerWeights for Layer {
    fn bytes(&self) -> u64 {
        let norms = self.attention_norm.bytes() + self.ffn_norm.bytes();
        self.attention.bytes() + self.ffn.bytes() + norms
    }

    fn experts_met(&self) -> Option<ExpertsMet> {
        self.ffn.experts_met()
    }
}

impl MtpBlock for Layer {
    fn forward(&self, x: &Tensor, pass: BlockPass<'_>, cache: &mut KvCache) -> Result<Tensor, ModelError> {
        Self::forward(self, x, pass, cache)
    }

    fn shifted(&self, by: f64) -> Result<Box<dyn MtpBlock>, ModelError> {
        Ok(Box::new(Self {
            attention_norm: self.attention_norm.shifted(by)?,
            attention: self.attention.shifted(by)?,
            ffn_norm: self.ffn_norm.shifted(by)?,
            ffn: self.ffn.clone(),
        }))
    }

    fn cache(&self, shape: &MtpShape, device: &Device) -> Result<KvCache, ModelError> {
        Self::cache(self, shape.ctx_len, (device, shape.form))
    }
}
