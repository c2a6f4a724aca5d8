//! One transformer block of the Llama kind on candle: attention with rotary positions over a [`KvCache`],
//! then a gated feed-forward layer, each behind an RMSNorm and added to the residual stream. Qwen3's
//! blocks norm queries and keys too, head by head.
//!
//! Invariant: up to [`ROW_BY_ROW`] rows, attention is computed one row at a time with the shapes of
//! plain decoding, so a row's result does not depend on how many rows run with it. Activations are
//! f32 whatever the weights are held in.

use crate::model::nn::linear::Linear;
use crate::model::nn::norm::RmsNorm;
use candle_core::{Device, Tensor};

use crate::model::nn::attention::{CachedRows, Scores, attend_cached};
use crate::model::nn::config::TransformerConfig;
use crate::model::nn::kv_cache::KvCache;
pub use crate::model::nn::rope::PairOrder;
use crate::model::nn::rope::RopeSpec;
use crate::model::{ModelError, tree_depths};

/// Most rows for which attention goes row by row; prefill blocks are wider.
pub const ROW_BY_ROW: usize = 16;

/// Cosines and sines of all positions.
#[derive(Clone, Debug)]
pub struct Rope {
    cos: Tensor, // [ctx, head_dim / 2]
    sin: Tensor, // [ctx, head_dim / 2]
    order: PairOrder,
}

impl Rope {
    /// Tables for `ctx` positions and heads of `head_dim` values.
    ///
    /// # Errors
    /// When memory is short.
    pub fn new(
        spec: &RopeSpec,
        head_dim: usize,
        ctx: usize,
        (order, device): (PairOrder, &Device),
    ) -> Result<Self, ModelError> {
        let frequencies = spec.frequencies(head_dim);
        let amplitude = spec.amplitude();
        let table = |of: fn(f64) -> f64| {
            let angles = (0..ctx).flat_map(|p| frequencies.iter().map(move |frequency| p as f64 * frequency));
            let values: Vec<f32> = angles.map(|angle| (of(angle) * amplitude) as f32).collect();
            Tensor::from_vec(values, (ctx, head_dim / 2), device)
        };
        Ok(Self { cos: table(f64::cos)?, sin: table(f64::sin)?, order })
    }

    /// Rotates `x [heads, m, head_dim]`, whose first row stands at position `start`.
    pub(in crate::model) fn rotate(
        &self,
        x: &Tensor,
        start: usize,
        tree: Option<&TreeRows>,
    ) -> Result<Tensor, ModelError> {
        let m = x.dim(1)?;
        let (cos, sin) = match tree {
            None => (self.cos.narrow(0, start, m)?, self.sin.narrow(0, start, m)?),
            Some(tree) => {
                let ids = tree.0.iter().map(|path| (start + path.len() - 1) as u32).collect::<Vec<_>>();
                let ids = Tensor::from_vec(ids, m, x.device())?;
                (self.cos.index_select(&ids, 0)?, self.sin.index_select(&ids, 0)?)
            }
        };
        let x = x.unsqueeze(0)?.contiguous()?;
        let rotated = match self.order {
            PairOrder::Interleaved => candle_nn::rotary_emb::rope_i(&x, &cos, &sin)?,
            PairOrder::HalfSplit => candle_nn::rotary_emb::rope(&x, &cos, &sin)?,
        };
        Ok(rotated.squeeze(0)?)
    }
}

/// Where the rows of a pass stand.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// Angles of all positions.
    pub rope: &'a Rope,
    /// The rows' tree; none where every row continues the one before it.
    pub tree: Option<&'a TreeRows>,
    /// Rotary position of the first row; none = the number of positions cached.
    pub at: Option<usize>,
}

/// The rows of a tree: for each the rows from the root to it, itself included.
#[derive(Clone, Debug)]
pub struct TreeRows(Vec<Vec<usize>>);

impl TreeRows {
    /// The tree in which row `i` continues row `parents[i]`.
    ///
    /// # Errors
    /// As [`tree_depths`].
    pub fn new(parents: &[usize]) -> Result<Self, ModelError> {
        let mut paths: Vec<Vec<usize>> = Vec::with_capacity(tree_depths(parents)?.len());
        for (row, parent) in parents.iter().enumerate() {
            let before = if row == 0 { &[][..] } else { &paths[*parent] };
            paths.push(before.iter().copied().chain([row]).collect());
        }
        Ok(Self(paths))
    }

    /// For each row the rows from the root to it, itself included.
    pub(in crate::model) fn paths(&self) -> &[Vec<usize>] {
        &self.0
    }
}

/// The weights of one block.
#[derive(Clone, Debug)]
pub struct Block {
    /// Before attention.
    pub attn_norm: RmsNorm,
    /// `[q_width, d]`.
    pub q: Linear,
    /// `[kv_width, d]`.
    pub k: Linear,
    /// `[kv_width, d]`.
    pub v: Linear,
    /// `[d, q_width]`.
    pub o: Linear,
    /// Of queries and keys, head by head, `[head_dim]` each; before they are rotated.
    pub head_norms: Option<[RmsNorm; 2]>,
    /// Before the feed-forward layer.
    pub ffn_norm: RmsNorm,
    /// `[ffn, d]`.
    pub gate: Linear,
    /// `[ffn, d]`.
    pub up: Linear,
    /// `[d, ffn]`.
    pub down: Linear,
}

impl Block {
    /// Runs `m` rows at the positions behind the cache and appends them to it: `[m, d] -> [m, d]`. Rows of
    /// a tree see their ancestors only, and stand where they would in a chain.
    ///
    /// # Errors
    /// When the cache is full or shapes do not fit.
    pub fn forward(
        &self,
        x: &Tensor,
        config: &TransformerConfig,
        place: Place<'_>,
        cache: &mut KvCache,
    ) -> Result<Tensor, ModelError> {
        self.forward_read((x, &self.attn_norm.forward(x)?), config, place, cache)
    }

    /// The same where attention reads something else than the normed rows, `[m, width of q, k and v]`.
    ///
    /// # Errors
    /// As [`Block::forward`].
    pub fn forward_read(
        &self,
        (x, read): (&Tensor, &Tensor),
        config: &TransformerConfig,
        place: Place<'_>,
        cache: &mut KvCache,
    ) -> Result<Tensor, ModelError> {
        let (m, tree) = (x.dim(0)?, place.tree);
        let start = cache.len();
        let at = place.at.unwrap_or(start);
        // 1. project and split into heads: [m, h * hd] -> [h, m, hd]
        let heads = |linear: &Linear, count| -> Result<Tensor, ModelError> {
            Ok(linear.forward(read)?.reshape((m, count, config.head_dim))?.transpose(0, 1)?)
        };
        let (mut q, mut k) = (heads(&self.q, config.heads)?, heads(&self.k, config.kv_heads)?);
        if let Some([of_q, of_k]) = &self.head_norms {
            (q, k) = (of_q.forward(&q)?, of_k.forward(&k)?);
        }
        let (q, k) = (place.rope.rotate(&q, at, tree)?, place.rope.rotate(&k, at, tree)?);
        cache.append(&k, &heads(&self.v, config.kv_heads)?)?;
        // 2. attend over everything up to each row
        let rows = CachedRows { start, tree, window: None };
        let attended = attend_cached(&q, cache, rows, Scores::of_heads(config.head_dim))?;
        let x = (x + self.o.forward(&attended)?)?;
        // 3. feed forward
        let normed = self.ffn_norm.forward(&x)?;
        let gated = (self.gate.forward(&normed)?.silu()? * self.up.forward(&normed)?)?;
        Ok((x + self.down.forward(&gated)?)?)
    }

    /// Bytes the matrices take in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        [&self.q, &self.k, &self.v, &self.o, &self.gate, &self.up, &self.down].iter().map(|w| w.bytes()).sum()
    }
}
