//! Latent attention: of each position one row is cached: the normed latent and a rotated key that all heads share.
//!
//! A head's key is `W_k c` beside that rotated key, its value `W_v c`, c being the latent. Neither is computed: `W_k`
//! is multiplied into the query and `W_v` into the result, so that all heads attend over the same short rows
//! (DeepSeek-V2, arXiv:2405.04434, section 2.1). Invariant: unless the cache is read in batches, few rows are computed one
//! by one ([`attend_rows`]), so with matrices on the native kernels a row's bits do not depend on the rows beside it.

use candle_core::Tensor;

use crate::model::ModelError;
use crate::model::families::deepseek::config::LatentShape;
use crate::model::nn::{BlockPass, KvCache, Linear, RmsNorm, SeenBy, attend_rows, widened};

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
    /// `W_k`: `[heads, plain, rank]`, f32.
    pub(super) to_keys: Tensor,
    /// `W_v`: `[heads, rank, value]`, f32.
    pub(super) to_values: Tensor,
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
        // 3. attend over everything up to each row
        let answers = attend_rows(cache, (pass.rows, None), 1, |seen| {
            let of_rows = |x: &Tensor| x.narrow(1, seen.first, seen.count);
            self.attend((&of_rows(&q)?, &of_rows(&turned)?), &seen)
        })?;
        self.out.forward(&answers.transpose(0, 1)?.contiguous()?.reshape((m, heads * value))?) // [h, m, value] -> [m, d]
    }

    /// Attention of `m` rows (`[heads, m, plain]` and `[heads, m, rotary]`) over the `n` positions seen: `-> [heads, m,
    /// value]`.
    fn attend(&self, (q, turned): (&Tensor, &Tensor), seen: &SeenBy) -> Result<Tensor, ModelError> {
        let (heads, m, _) = q.dims3()?;
        let (keys, values) = &seen.cached; // [1, n, rank + rotary], [1, n, rank]
        let (_, n, width) = keys.dims3()?;
        let q = q.contiguous()?.matmul(&self.to_keys)?; // [h, m, plain] -> [h, m, rank]
        let q = Tensor::cat(&[&q, turned], 2)?.reshape((1, heads * m, width))?;
        let products = q.matmul(&widened(keys)?.t()?)?; // wide keys and values never exist together
        let scores = (products * self.shape.scale)?.reshape((heads, m, n))?;
        let weights = weigh(scores, seen.mask.as_ref())?.reshape((1, heads * m, n))?;
        // candle multiplies rows with gaps between them only on the CPU
        let values = widened(values)?;
        let values = if values.device().is_cpu() { values } else { values.contiguous()? };
        let latents = weights.matmul(&values)?.reshape((heads, m, self.shape.rank))?;
        Ok(latents.matmul(&self.to_values)?)
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
        let folded = [&self.to_keys, &self.to_values].map(|w| (w.elem_count() * w.dtype().size_in_bytes()) as u64);
        queries + self.kv.bytes() + self.kv_norm.bytes() + self.out.bytes() + folded.iter().sum::<u64>()
    }
}

/// Scores `[heads, m, n]` to weights with sum 1; at most two tensors of their size exist at once.
fn weigh(scores: Tensor, mask: Option<&Tensor>) -> Result<Tensor, ModelError> {
    let Some(mask) = mask else { return Ok(candle_nn::ops::softmax_last_dim(&scores)?) };
    let seen = scores.broadcast_add(mask)?;
    drop(scores);
    Ok(candle_nn::ops::softmax_last_dim(&seen)?)
}
