//! Latent attention: of each position one row is cached: the normed latent and a rotated key that all heads share.
//!
//! A head's key is `W_k c` beside that rotated key, its value `W_v c`, c being the latent. Neither is computed: `W_k`
//! is multiplied into the query and `W_v` into the result, so that all heads attend over the same short rows
//! (DeepSeek-V2, arXiv:2405.04434, section 2.1). Invariant: on the native kernels a row's bits do not depend on the rows
//! beside it; nor do they on candle, where few rows are computed one by one, unless the cache is read in batches.

use candle_core::Tensor;

use crate::ModelError;
use crate::families::deepseek::config::LatentShape;
use crate::nn::{BlockPass, HeadMatrix, KvCache, Linear, RmsNorm, Scores, attend_by_head, runs_one_by_one};

/// Epsilon of the norms inside attention, whatever `rms_norm_eps` is: as in `modeling_deepseek_v3.py`.
pub(super) const EPS: f32 = 1e-6;

/// How queries are computed.
#[derive(Clone, Debug)]
pub(super) enum Queries {
    /// `[heads · (plain + rotary), d]`
    Direct(Linear),
    /// Through a low rank: `[q_rank, d]`, a norm, `[heads · (plain + rotary), q_rank]`.
    Squeezed(Linear, RmsNorm, Linear),
}

/// Weights of latent attention.
#[derive(Clone, Debug)]
pub(super) struct LatentAttention {
    pub(super) shape: LatentShape,
    pub(super) queries: Queries,
    /// `[rank + rotary, d]`
    pub(super) kv: Linear,
    /// Norm of the latent.
    pub(super) kv_norm: RmsNorm,
    /// `W_k` transposed: `[heads, rank, plain]`.
    pub(super) to_keys: HeadMatrix,
    /// `W_v`: `[heads, value, rank]`.
    pub(super) to_values: HeadMatrix,
    /// `[d, heads · value]`
    pub(super) out: Linear,
}

impl LatentAttention {
    /// `[m, d] -> [m, d]`; appends to the cache.
    pub(super) fn forward(&self, x: &Tensor, pass: BlockPass<'_>, cache: &mut KvCache) -> Result<Tensor, ModelError> {
        let LatentShape { heads, rank, plain, rotary, value, .. } = self.shape;
        let m = x.dim(0)?;
        // 1. queries, whose last values are rotated
        let q = match &self.queries {
            Queries::Direct(q) => q.forward(x)?,
            Queries::Squeezed(a, norm, b) => b.forward(&norm.forward(&a.forward(x)?)?)?,
        };
        let q = q.reshape((m, heads, plain + rotary))?.transpose(0, 1)?.contiguous()?; // [h, m, plain + rotary]
        let turned = pass.rotate(&q.narrow(2, plain, rotary)?)?;
        let q = q.narrow(2, 0, plain)?;
        // 2. the cached row of these positions
        let kept = self.kv.forward(x)?; // [m, rank + rotary]
        let latent = self.kv_norm.forward(&kept.narrow(1, 0, rank)?)?.unsqueeze(0)?;
        let key = pass.rotate(&kept.narrow(1, rank, rotary)?.unsqueeze(0)?)?;
        let rows = Tensor::cat(&[latent, key], 2)?; // [1, m, rank + rotary]
        cache.append(&rows, &rows)?;
        // 3. attend over everything up to each row, in latents
        let one_by_one = runs_one_by_one(cache, pass.rows);
        let q = Tensor::cat(&[self.to_keys.forward(&q, one_by_one)?, turned], 2)?; // [h, m, rank + rotary]
        let scores = Scores { scale: self.shape.scale, softcap: None };
        let latents = attend_by_head(&q, cache, (pass.rows, None), scores)?; // [h, m, rank]
        drop(q);
        // 4. latents to values
        let answers = self.to_values.forward(&latents, one_by_one)?; // [h, m, value]
        self.out.forward(&answers.transpose(0, 1)?.contiguous()?.reshape((m, heads * value))?)
    }

    pub(super) fn shifted(&self, by: f64) -> Result<Self, ModelError> {
        let queries = match &self.queries {
            Queries::Direct(q) => Queries::Direct(q.clone()),
            Queries::Squeezed(a, norm, b) => Queries::Squeezed(a.clone(), norm.shifted(by)?, b.clone()),
        };
        Ok(Self { queries, kv_norm: self.kv_norm.shifted(by)?, ..self.clone() })
    }

    /// Bytes the weights take in memory.
    pub(super) fn bytes(&self) -> u64 {
        let queries = match &self.queries {
            Queries::Direct(q) => q.bytes(),
            Queries::Squeezed(a, norm, b) => a.bytes() + norm.bytes() + b.bytes(),
        };
        let folded = self.to_keys.bytes() + self.to_values.bytes();
        queries + self.kv.bytes() + self.kv_norm.bytes() + self.out.bytes() + folded
    }
}
