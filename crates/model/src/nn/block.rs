//! One transformer block of the Llama kind on candle: attention with rotary positions over a [`KvCache`], then a gated
//! feed-forward layer, each after an RMSNorm and added to the residual stream. Qwen3's blocks norm queries and keys
//! too, head by head; Gemma 3's also the outputs before they are added.
//!
//! Invariant: unless the cache is read in batches ([`attention`](crate::nn::attend_cached)), a row's result does not
//! depend on how many rows run with it. Activations are f32 whatever the dtype of the weights.

use candle_core::{Device, Tensor};

use crate::ModelError;
use crate::nn::attention::{Scores, attend_cached};
use crate::nn::config::TransformerConfig;
use crate::nn::feed_forward::{Activation, Gated};
use crate::nn::kv_cache::KvCache;
use crate::nn::linear::Linear;
use crate::nn::norm::RmsNorm;
use crate::nn::pass_rows::PassRows;
use crate::nn::rope::{PairOrder, RopeSpec};
use crate::nn::trunk::LayerWeights;
use draftscope_host::fatal::OutOfMemory;

/// Cosines and sines of all positions.
#[derive(Clone, Debug)]
pub struct Rope {
    /// Rotated values of a head, from the first.
    width: usize,
    cos: Tensor, // [ctx, width / 2]
    sin: Tensor, // [ctx, width / 2]
    order: PairOrder,
}

impl Rope {
    /// Tables for `ctx` positions and heads of which `width` values are rotated.
    ///
    /// # Errors
    /// When memory is short.
    pub fn new(
        spec: &RopeSpec,
        width: usize,
        ctx: usize,
        (order, device): (PairOrder, &Device),
    ) -> Result<Self, ModelError> {
        let frequencies = spec.frequencies(width, ctx);
        let amplitude = spec.amplitude();
        let table = |of: fn(f64) -> f64| {
            let angles = (0..ctx).flat_map(|p| frequencies.iter().map(move |frequency| p as f64 * frequency));
            let mut values = OutOfMemory::room_for(ctx * width / 2);
            values.extend(angles.map(|angle| (of(angle) * amplitude) as f32));
            Tensor::from_vec(values, (ctx, width / 2), device)
        };
        Ok(Self { width, cos: table(f64::cos)?, sin: table(f64::sin)?, order })
    }

    /// Rotates the first values of `x [heads, m, head_dim]`, whose first row stands at position `start`. `depths [m]`: of
    /// the rows below the first; `None` if they ascend.
    pub(crate) fn rotate(&self, x: &Tensor, start: usize, depths: Option<&Tensor>) -> Result<Tensor, ModelError> {
        let rest = x.dim(2)?.saturating_sub(self.width);
        if rest > 0 {
            let turned = self.rotate_whole(&x.narrow(2, 0, self.width)?, start, depths)?;
            return Ok(Tensor::cat(&[turned, x.narrow(2, self.width, rest)?], 2)?);
        }
        self.rotate_whole(x, start, depths)
    }

    fn rotate_whole(&self, x: &Tensor, start: usize, depths: Option<&Tensor>) -> Result<Tensor, ModelError> {
        let m = x.dim(1)?;
        let of_rows = |table: &Tensor| {
            let table = table.narrow(0, start, m)?;
            depths.map_or(Ok(table.clone()), |depths| table.index_select(depths, 0))
        };
        let (cos, sin) = (of_rows(&self.cos)?, of_rows(&self.sin)?);
        let x = x.unsqueeze(0)?.contiguous()?;
        let rotated = match self.order {
            PairOrder::Interleaved => candle_nn::rotary_emb::rope_i(&x, &cos, &sin)?,
            PairOrder::HalfSplit => candle_nn::rotary_emb::rope(&x, &cos, &sin)?,
        };
        Ok(rotated.squeeze(0)?)
    }
}

/// Arguments of a block besides the rows.
#[derive(Clone, Copy)]
pub struct BlockPass<'a> {
    /// Angles of all positions.
    pub rope: &'a Rope,
    /// The rows.
    pub rows: &'a PassRows,
    /// Rotary position of the first row; `None` = the number of positions before it.
    pub at: Option<usize>,
    /// Positions that a row sees, including its own; `None` = all.
    pub window: Option<usize>,
}

impl<'a> BlockPass<'a> {
    /// For rows that see the whole cache, at the positions that they have there.
    #[must_use]
    pub fn new(rope: &'a Rope, rows: &'a PassRows) -> Self {
        Self { rope, rows, at: None, window: None }
    }

    /// Rotates queries or keys of the rows, `[heads, m, head_dim]`.
    ///
    /// # Errors
    /// When there are no angles for a position.
    pub fn rotate(&self, x: &Tensor) -> Result<Tensor, ModelError> {
        let depths = self.rows.depths(x.device())?;
        self.rope.rotate(x, self.at.unwrap_or(self.rows.start()), depths.as_ref())
    }
}

/// Weights and conventions of one block.
#[derive(Clone, Debug)]
pub struct Block {
    /// Before attention.
    pub attn_norm: RmsNorm,
    q: Linear, // [q_width, what attention reads]
    k: Linear, // [kv_width, what attention reads]
    v: Linear, // [kv_width, what attention reads]
    o: Linear, // [d, q_width]
    /// Of queries and keys, head by head, `[head_dim]` each; before they are rotated.
    head_norms: Option<[RmsNorm; 2]>,
    ffn_norm: RmsNorm,
    ffn: Gated,
    heads: [usize; 2], // of queries, of keys and values
    head_dim: usize,
    /// How scores are computed.
    pub scores: Scores,
    /// Norms of the outputs of attention and feed-forward layer before they are added; `None` = no norm.
    pub post_norms: Option<[RmsNorm; 2]>,
}

impl Block {
    /// Reads a block whose attention reads rows of `input` values, with `linear(part, out, in)` and `norm(part,
    /// width)`; parts are named as in GGUF files.
    ///
    /// # Errors
    /// Those of `linear` and `norm`.
    pub fn read(
        c: &TransformerConfig,
        (input, activation): (usize, Activation),
        linear: &dyn Fn(&str, usize, usize) -> Result<Linear, ModelError>,
        norm: &dyn Fn(&str, usize) -> Result<RmsNorm, ModelError>,
    ) -> Result<Self, ModelError> {
        let ffn =
            Gated::read((c.d_model, c.ffn), activation, |part, out, input| linear(&format!("ffn_{part}"), out, input))?;
        Ok(Self {
            attn_norm: norm("attn_norm", c.d_model)?,
            q: linear("attn_q", c.q_width(), input)?,
            k: linear("attn_k", c.kv_width(), input)?,
            v: linear("attn_v", c.kv_width(), input)?,
            o: linear("attn_output", c.d_model, c.q_width())?,
            head_norms: match c.conventions.qk_norm {
                true => Some([norm("attn_q_norm", c.head_dim)?, norm("attn_k_norm", c.head_dim)?]),
                false => None,
            },
            ffn_norm: norm("ffn_norm", c.d_model)?,
            ffn,
            heads: [c.heads, c.kv_heads],
            head_dim: c.head_dim,
            scores: Scores::of_heads(c.head_dim),
            post_norms: None,
        })
    }

    /// Runs `m` rows at the positions after the cache and appends them to it: `[m, d] -> [m, d]`. Rows of a tree see
    /// only their ancestors, at the positions they would have in a chain.
    ///
    /// # Errors
    /// When the cache is full or shapes do not fit.
    pub fn forward(&self, x: &Tensor, pass: BlockPass<'_>, cache: &mut KvCache) -> Result<Tensor, ModelError> {
        self.forward_read((x, &self.attn_norm.forward(x)?), pass, cache)
    }

    /// The same with another input of attention than the normed rows, `[m, width of q, k and v]`.
    ///
    /// # Errors
    /// As [`Block::forward`].
    pub fn forward_read(
        &self,
        (x, read): (&Tensor, &Tensor),
        pass: BlockPass<'_>,
        cache: &mut KvCache,
    ) -> Result<Tensor, ModelError> {
        let m = x.dim(0)?;
        // 1. project and split into heads: [m, h * hd] -> [h, m, hd]
        let heads = |linear: &Linear, count| -> Result<Tensor, ModelError> {
            Ok(linear.forward(read)?.reshape((m, count, self.head_dim))?.transpose(0, 1)?)
        };
        let [of_q, of_kv] = self.heads;
        let (mut q, mut k) = (heads(&self.q, of_q)?, heads(&self.k, of_kv)?);
        if let Some([q_norm, k_norm]) = &self.head_norms {
            (q, k) = (q_norm.forward(&q)?, k_norm.forward(&k)?);
        }
        let (q, k) = (pass.rotate(&q)?, pass.rotate(&k)?);
        cache.append(&k, &heads(&self.v, of_kv)?)?;
        // 2. attend over what each row sees
        let rows = (pass.rows, pass.window);
        let attended = self.o.forward(&attend_cached(&q, cache, rows, self.scores)?)?;
        let x = self.add(x, attended, 0)?;
        // 3. feed forward
        let gated = self.ffn.forward(&self.ffn_norm.forward(&x)?)?;
        self.add(&x, gated, 1)
    }

    /// Adds the output of attention (0) or of the feed-forward layer (1) to the residual stream.
    fn add(&self, x: &Tensor, update: Tensor, part: usize) -> Result<Tensor, ModelError> {
        Ok(match &self.post_norms {
            Some(norms) => (x + norms[part].forward(&update)?)?,
            None => (x + update)?,
        })
    }

    /// A copy whose norms all have this added to their weights.
    ///
    /// # Errors
    /// When memory is short.
    pub fn shifted(&self, by: f64) -> Result<Self, ModelError> {
        let pair = |norms: &Option<[RmsNorm; 2]>| -> Result<_, ModelError> {
            norms.as_ref().map(|[a, b]| Ok([a.shifted(by)?, b.shifted(by)?])).transpose()
        };
        let (head_norms, post_norms) = (pair(&self.head_norms)?, pair(&self.post_norms)?);
        let (attn_norm, ffn_norm) = (self.attn_norm.shifted(by)?, self.ffn_norm.shifted(by)?);
        Ok(Self { attn_norm, head_norms, ffn_norm, post_norms, ..self.clone() })
    }
}

impl LayerWeights for Block {
    fn bytes(&self) -> u64 {
        let norms = [&self.attn_norm, &self.ffn_norm].into_iter();
        let norms = norms.chain(self.head_norms.iter().flatten()).chain(self.post_norms.iter().flatten());
        let matrices = [&self.q, &self.k, &self.v, &self.o].iter().map(|w| w.bytes()).sum::<u64>();
        matrices + self.ffn.bytes() + norms.map(RmsNorm::bytes).sum::<u64>()
    }
}
