//! One layer of a block drafter: the attention of a block's rows to the context and to each other, and a gated
//! feed-forward layer.

use candle_core::{Device, Tensor};

use crate::ModelError;
use crate::drafters::dflash::config::Sight;
use crate::nn::{Activation, Gated, KvCache, Linear, RmsNorm, Rope, Scores, TransformerConfig, widened};

/// Weights of a layer.
pub(super) struct Layer {
    attn_norm: RmsNorm,
    q: Linear, // [q_width, d]
    k: Linear, // [kv_width, d]
    v: Linear, // [kv_width, d]
    o: Linear, // [d, q_width]
    head_norms: [RmsNorm; 2],
    ffn_norm: RmsNorm,
    ffn: Gated,
    heads: [usize; 2], // of queries, of keys and values
    head_dim: usize,
    sight: Sight,
}

/// Reads a matrix by the checkpoint's name of its part, outputs and inputs.
type Matrix<'a> = dyn Fn(&str, usize, usize) -> Result<Linear, ModelError> + 'a;

impl Layer {
    /// Reads a layer; parts are named as in checkpoints, without `.weight`.
    pub(super) fn read(
        c: &TransformerConfig,
        sight: Sight,
        linear: &Matrix<'_>,
        norm: &dyn Fn(&str, usize) -> Result<RmsNorm, ModelError>,
    ) -> Result<Self, ModelError> {
        let of_ffn = |part: &str, out, input| linear(&format!("mlp.{part}_proj"), out, input);
        Ok(Self {
            attn_norm: norm("input_layernorm", c.d_model)?,
            q: linear("self_attn.q_proj", c.q_width(), c.d_model)?,
            k: linear("self_attn.k_proj", c.kv_width(), c.d_model)?,
            v: linear("self_attn.v_proj", c.kv_width(), c.d_model)?,
            o: linear("self_attn.o_proj", c.d_model, c.q_width())?,
            head_norms: [norm("self_attn.q_norm", c.head_dim)?, norm("self_attn.k_norm", c.head_dim)?],
            ffn_norm: norm("post_attention_layernorm", c.d_model)?,
            ffn: Gated::read((c.d_model, c.ffn), Activation::Silu, of_ffn)?,
            heads: [c.heads, c.kv_heads],
            head_dim: c.head_dim,
            sight,
        })
    }

    /// Bytes the weights take.
    pub(super) fn bytes(&self) -> u64 {
        let matrices = [&self.q, &self.k, &self.v, &self.o].iter().map(|matrix| matrix.bytes()).sum::<u64>();
        let norms = [&self.attn_norm, &self.ffn_norm].into_iter().chain(&self.head_norms);
        matrices + self.ffn.bytes() + norms.map(RmsNorm::bytes).sum::<u64>()
    }

    /// `[m, width] -> [count, m, head_dim]`
    fn split(&self, x: &Tensor, count: usize) -> Result<Tensor, ModelError> {
        Ok(x.reshape((x.dim(0)?, count, self.head_dim))?.transpose(0, 1)?)
    }

    /// Rotated keys, and values, of rows from position `at` on: `[kv_heads, m, head_dim]` each.
    fn keys_values(&self, x: &Tensor, (rope, at): (&Rope, usize)) -> Result<(Tensor, Tensor), ModelError> {
        let keys = self.head_norms[1].forward(&self.split(&self.k.forward(x)?, self.heads[1])?)?;
        Ok((rope.rotate(&keys, at, None)?, self.split(&self.v.forward(x)?, self.heads[1])?))
    }

    /// Appends the fused states of positions of the context, `[m, d]`, to the cache.
    pub(super) fn inject(&self, fused: &Tensor, rope: &Rope, cache: &mut KvCache) -> Result<(), ModelError> {
        let (keys, values) = self.keys_values(fused, (rope, cache.len()))?;
        cache.append(&keys, &values)
    }

    /// Runs the rows of a block, `[m, d] -> [m, d]`, after the positions in the cache, which stays as it is.
    pub(super) fn forward(&self, x: &Tensor, rope: &Rope, cache: &KvCache) -> Result<Tensor, ModelError> {
        let (at, m) = (cache.len(), x.dim(0)?);
        let normed = self.attn_norm.forward(x)?;
        let queries = self.head_norms[0].forward(&self.split(&self.q.forward(&normed)?, self.heads[0])?)?;
        let queries = rope.rotate(&queries, at, None)?;
        let (keys, values) = self.keys_values(&normed, (rope, at))?;
        let first = self.sight.window.map_or(0, |window| (at + 1).saturating_sub(window).min(at));
        let (old_keys, old_values) = cache.range(first..at)?;
        let keys = Tensor::cat(&[widened(&old_keys)?, keys], 1)?;
        let values = Tensor::cat(&[widened(&old_values)?, values.contiguous()?], 1)?;
        let hidden = self.sight.hidden((first, at), m, x.device())?;
        let x = (x + self.o.forward(&self.attend(&queries, (&keys, &values), hidden)?)?)?;
        Ok((&x + self.ffn.forward(&self.ffn_norm.forward(&x)?)?)?)
    }

    /// softmax(q·kᵀ/√hd + mask)·v: `[heads, m, hd]` and `[kv_heads, n, hd]` twice -> `[m, heads · hd]`.
    fn attend(
        &self,
        queries: &Tensor,
        (keys, values): (&Tensor, &Tensor),
        hidden: Option<Tensor>,
    ) -> Result<Tensor, ModelError> {
        let ([heads, kv_heads], m, n) = (self.heads, queries.dim(1)?, keys.dim(1)?);
        let stacked = queries.contiguous()?.reshape((kv_heads, heads / kv_heads * m, self.head_dim))?;
        let products = stacked.matmul(&keys.t()?.contiguous()?)?;
        let mut scores = (products * Scores::of_heads(self.head_dim).scale)?.reshape((heads, m, n))?;
        if let Some(hidden) = hidden {
            scores = scores.broadcast_add(&hidden)?;
        }
        let weights = candle_nn::ops::softmax_last_dim(&scores)?.reshape((kv_heads, heads / kv_heads * m, n))?;
        let mixed = weights.matmul(&values.contiguous()?)?.reshape((heads, m, self.head_dim))?;
        Ok(mixed.transpose(0, 1)?.contiguous()?.reshape((m, heads * self.head_dim))?)
    }
}

impl Sight {
    /// What is added to scores of `m` rows from position `at` on over positions from `first` on: 0 or −∞, `[1, m, n]`;
    /// `None` if every row sees everything.
    fn hidden(self, (first, at): (usize, usize), m: usize, device: &Device) -> Result<Option<Tensor>, ModelError> {
        if self.window.is_none() && !self.causal {
            return Ok(None);
        }
        let is_hidden = |row: usize, key: usize| {
            let too_far = self.window.is_some_and(|window| row.abs_diff(key) >= window);
            too_far || self.causal && key > row
        };
        let rows = (at..at + m).flat_map(|row| (first..at + m).map(move |key| (row, key)));
        let values: Vec<f32> =
            rows.map(|(row, key)| if is_hidden(row, key) { f32::NEG_INFINITY } else { 0.0 }).collect();
        Ok(Some(Tensor::from_vec(values, (1, m, at + m - first), device)?))
    }
}
