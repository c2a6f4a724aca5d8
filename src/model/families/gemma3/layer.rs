//! Layers of Gemma 3: attention and a gated feed-forward layer, each between two RMSNorms and added to the residual stream.

use candle_core::Tensor;

use crate::model::ModelError;
use crate::model::families::gemma3::config::Gemma3Config;
use crate::model::files::source::Source;
use crate::model::nn::attention::{CachedRows, Scores, attend_cached};
use crate::model::nn::block::Rope;
use crate::model::nn::kv_cache::KvCache;
use crate::model::nn::linear::Linear;
use crate::model::nn::matmul_backend::Tensors;
use crate::model::nn::norm::RmsNorm;

/// A layer.
pub(super) struct Layer {
    heads: [usize; 2], // of queries, of keys and values
    head_dim: usize,
    scores: Scores,
    attn_norm: RmsNorm,
    q: Linear,
    k: Linear,
    v: Linear,
    q_norm: RmsNorm,
    k_norm: RmsNorm,
    o: Linear,
    post_attn_norm: RmsNorm,
    ffn_norm: RmsNorm,
    gate: Linear,
    up: Linear,
    down: Linear,
    post_ffn_norm: RmsNorm,
}

impl Layer {
    /// Runs `m` rows and appends them to the cache: `[m, d] -> [m, d]`.
    pub(super) fn forward(
        &self,
        x: &Tensor,
        rope: &Rope,
        rows: CachedRows<'_>,
        cache: &mut KvCache,
    ) -> Result<Tensor, ModelError> {
        // 1. attend
        let normed = self.attn_norm.forward(x)?;
        let heads = |linear: &Linear, count: usize| -> Result<Tensor, ModelError> {
            Ok(linear.forward(&normed)?.reshape((x.dim(0)?, count, self.head_dim))?.transpose(0, 1)?)
        };
        let [of_q, of_kv] = self.heads;
        let q = rope.rotate(&self.q_norm.forward(&heads(&self.q, of_q)?)?, rows.start, rows.tree)?;
        let k = rope.rotate(&self.k_norm.forward(&heads(&self.k, of_kv)?)?, rows.start, rows.tree)?;
        cache.append(&k, &heads(&self.v, of_kv)?)?;
        let attended = attend_cached(&q, cache, rows, self.scores)?;
        let x = (x + self.post_attn_norm.forward(&self.o.forward(&attended)?)?)?;
        // 2. feed forward
        let normed = self.ffn_norm.forward(&x)?;
        let gated = (self.gate.forward(&normed)?.gelu()? * self.up.forward(&normed)?)?;
        Ok((&x + self.post_ffn_norm.forward(&self.down.forward(&gated)?)?)?)
    }

    /// Bytes the matrices take in memory.
    pub(super) fn bytes(&self) -> u64 {
        [&self.q, &self.k, &self.v, &self.o, &self.gate, &self.up, &self.down].iter().map(|w| w.bytes()).sum()
    }
}

/// Reads tensors by name.
pub(super) struct Reader<'a> {
    pub(super) tensors: Tensors<'a>,
    pub(super) config: &'a Gemma3Config,
}

impl Reader<'_> {
    /// A norm: checkpoints hold w where the model multiplies with 1 + w, GGUF files the sum.
    pub(super) fn norm(&self, name: &str, width: usize) -> Result<RmsNorm, ModelError> {
        let norm = self.tensors.norm(name, width)?;
        if matches!(self.tensors.source, Source::Folder(_)) { norm.shifted(1.0) } else { Ok(norm) }
    }

    pub(super) fn layer(&self, layer: usize) -> Result<Layer, ModelError> {
        let c = &self.config.transformer;
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        let linear = |part: &str, out, input| self.tensors.linear(&name(part), out, input);
        let norm = |part: &str, width| self.norm(&name(part), width);
        Ok(Layer {
            heads: [c.heads, c.kv_heads],
            head_dim: c.head_dim,
            scores: self.config.layers.scores,
            attn_norm: norm("attn_norm", c.d_model)?,
            q: linear("attn_q", c.q_width(), c.d_model)?,
            k: linear("attn_k", c.kv_width(), c.d_model)?,
            v: linear("attn_v", c.kv_width(), c.d_model)?,
            q_norm: norm("attn_q_norm", c.head_dim)?,
            k_norm: norm("attn_k_norm", c.head_dim)?,
            o: linear("attn_output", c.d_model, c.q_width())?,
            post_attn_norm: norm("post_attention_norm", c.d_model)?,
            ffn_norm: norm("ffn_norm", c.d_model)?,
            gate: linear("ffn_gate", c.ffn, c.d_model)?,
            up: linear("ffn_up", c.ffn, c.d_model)?,
            down: linear("ffn_down", c.d_model, c.ffn)?,
            post_ffn_norm: norm("post_ffw_norm", c.d_model)?,
        })
    }
}
