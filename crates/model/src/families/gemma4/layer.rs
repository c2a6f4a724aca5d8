//! Layers of Gemma 4: attention and a gated feed-forward layer, each between two RMSNorms and added to the residual
//! stream, then the layer's own embedding of the token, and a scale for all of it.
//!
//! Invariant: with matrices on the native kernels a row's bits do not depend on the rows beside it
//! ([`attention`](crate::nn::attention)). Activations are f32 whatever the dtype of the weights. The caller
//! passes the cache to read.

use candle_core::Tensor;

use crate::families::gemma4::config::LayerShape;
use crate::families::gemma4::experts::GemmaExperts;
use crate::nn::{Activation, BlockPass, Gated, KvCache, LayerWeights, Linear, RmsNorm, Scores, attend_cached, gated};
use crate::{ExpertsMet, ModelError};

/// The matrices and norms of keys and values.
#[derive(Clone, Debug)]
pub(super) struct KeyValue {
    pub(super) k: Linear,
    /// `None` if keys, normed in another way, serve as values.
    pub(super) v: Option<Linear>,
    pub(super) k_norm: RmsNorm,
    /// Norm without a weight.
    pub(super) v_norm: RmsNorm,
}

/// Adds the layer's own embedding of the token.
#[derive(Clone, Debug)]
pub(super) struct PerLayerInput {
    /// `[width, d]`
    pub(super) gate: Linear,
    /// `[d, width]`
    pub(super) project: Linear,
    pub(super) norm: RmsNorm,
}

/// A layer.
#[derive(Clone, Debug)]
pub struct Layer {
    pub(super) shape: LayerShape,
    pub(super) heads: usize,
    pub(super) attn_norm: RmsNorm,
    pub(super) q: Linear,
    pub(super) q_norm: RmsNorm,
    /// `None` if another layer's are read.
    pub(super) kv: Option<KeyValue>,
    pub(super) o: Linear,
    pub(super) post_attn_norm: RmsNorm,
    pub(super) ffn_norm: RmsNorm,
    pub(super) ffn: Gated,
    /// Experts beside it.
    pub(super) experts: Option<GemmaExperts>,
    pub(super) post_ffn_norm: RmsNorm,
    pub(super) per_layer: Option<PerLayerInput>,
    pub(super) scale: f64,
}

impl Layer {
    /// `[m, heads · hd] -> [heads, m, hd]`
    fn split(&self, x: &Tensor, heads: usize) -> Result<Tensor, ModelError> {
        Ok(x.reshape((x.dim(0)?, heads, self.shape.head_dim))?.transpose(0, 1)?)
    }

    /// Queries of normed rows, `[heads, m, hd]`, not yet rotated.
    fn queries(&self, normed: &Tensor) -> Result<Tensor, ModelError> {
        self.q_norm.forward(&self.split(&self.q.forward(normed)?, self.heads)?)
    }

    /// Appends keys and values of normed rows to the cache, if the layer has any.
    fn remember(&self, normed: &Tensor, pass: BlockPass<'_>, cache: &mut KvCache) -> Result<(), ModelError> {
        let Some(kv) = &self.kv else {
            return Ok(());
        };
        let raw = self.split(&kv.k.forward(normed)?, self.shape.kv_heads)?;
        let keys = pass.rotate(&kv.k_norm.forward(&raw)?)?;
        let values = match &kv.v {
            Some(v) => self.split(&v.forward(normed)?, self.shape.kv_heads)?,
            None => raw,
        };
        cache.append(&keys, &kv.v_norm.forward(&values)?)
    }

    /// Runs `m` rows; the cache is the layer's own, which grows, or that of another layer, which already contains the
    /// rows: `[m, d] -> [m, d]`.
    pub(super) fn forward(
        &self,
        x: &Tensor,
        pass: BlockPass<'_>,
        per_layer: Option<&Tensor>,
        cache: &mut KvCache,
    ) -> Result<Tensor, ModelError> {
        self.rest(x, self.attend(x, pass, cache)?, per_layer)
    }

    /// `[m, d] -> [m, heads · hd]`
    fn attend(&self, x: &Tensor, pass: BlockPass<'_>, cache: &mut KvCache) -> Result<Tensor, ModelError> {
        let normed = self.attn_norm.forward(x)?;
        let q = pass.rotate(&self.queries(&normed)?)?;
        self.remember(&normed, pass, cache)?;
        attend_cached(&q, cache, (pass.rows, pass.window), Scores::plain())
    }

    /// The rest of the layer after attention: `x [m, d]`, attended `[m, heads · hd] -> [m, d]`.
    fn rest(&self, x: &Tensor, attended: Tensor, per_layer: Option<&Tensor>) -> Result<Tensor, ModelError> {
        // 1. add what attention gives
        let x = (x + self.post_attn_norm.forward(&self.o.forward(&attended)?)?)?;
        drop(attended); // a prompt's is large
        // 2. feed forward
        let mut update = self.ffn.forward(&self.ffn_norm.forward(&x)?)?;
        if let Some(experts) = &self.experts {
            update = experts.add(&update, &x)?;
        }
        let mut x = (&x + self.post_ffn_norm.forward(&update)?)?;
        // 3. the token's embedding for this layer
        if let (Some(input), Some(embedded)) = (&self.per_layer, per_layer) {
            let gated = gated(input.gate.forward(&x)?, embedded, Activation::Gelu)?;
            x = (&x + input.norm.forward(&input.project.forward(&gated)?)?)?;
        }
        Ok((x * self.scale)?)
    }
}

impl LayerWeights for Layer {
    fn bytes(&self) -> u64 {
        let kv = self.kv.iter().flat_map(|kv| std::iter::once(&kv.k).chain(&kv.v));
        let per_layer = self.per_layer.iter().flat_map(|input| [&input.gate, &input.project]);
        let matrices = [&self.q, &self.o].into_iter().chain(kv).chain(per_layer).map(Linear::bytes).sum::<u64>();
        let norms = [&self.attn_norm, &self.q_norm, &self.post_attn_norm, &self.ffn_norm, &self.post_ffn_norm];
        let others = self.kv.iter().map(|kv| &kv.k_norm).chain(self.per_layer.iter().map(|input| &input.norm));
        let experts = self.experts.as_ref().map_or(0, GemmaExperts::bytes);
        experts + self.ffn.bytes() + matrices + norms.into_iter().chain(others).map(RmsNorm::bytes).sum::<u64>()
    }

    fn experts_met(&self) -> Option<ExpertsMet> {
        self.experts.as_ref().map(|experts| experts.mixture().experts_met())
    }
}
