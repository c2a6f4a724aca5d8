//! Attention over a [`KvCache`]: causal, within a window, and over trees.
//!
//! Invariant: a row's result does not depend on the rows beside it. Up to
//! [`ROW_BY_ROW`](crate::nn::ROW_BY_ROW) rows therefore attend one at a time with the shapes of plain decoding,
//! unless the cache is read in batches: then all rows are one product with a mask, as many launches as a single row takes.

use candle_core::{DType, Tensor};

use crate::ModelError;
use crate::nn::feed_forward::capped;
use crate::nn::kv_cache::KvCache;
use crate::nn::pass_rows::PassRows;

/// How scores are worked out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scores {
    /// Factor of q·kᵀ.
    pub scale: f64,
    /// `c` of c·tanh(score / c), if scores are capped.
    pub softcap: Option<f64>,
}

impl Scores {
    /// 1 / √hd (Vaswani et al., 2017).
    #[must_use]
    pub fn of_heads(head_dim: usize) -> Self {
        Self { scale: 1.0 / (head_dim as f64).sqrt(), softcap: None }
    }

    /// q·kᵀ as it is.
    #[must_use]
    pub fn plain() -> Self {
        Self { scale: 1.0, softcap: None }
    }

    fn of(self, products: Tensor) -> Result<Tensor, ModelError> {
        let scores = if self.scale == 1.0 { products } else { (products * self.scale)? };
        self.softcap.map_or(Ok(scores.clone()), |cap| capped(&scores, cap))
    }
}

/// Whether candle computes the rows of a pass one by one, so that a row's bits do not depend on the rows beside it.
#[must_use]
pub fn runs_one_by_one(cache: &KvCache, rows: &PassRows) -> bool {
    !cache.is_batched() && !rows.is_prompt()
}

/// Attention of `q [heads, m, hd]` over what each row sees of the cache, which contains the rows already: -> `[m, heads ·
/// width of a value]`. `window`: positions that a row sees, including its own; `None` = all.
///
/// # Errors
/// When shapes do not fit.
pub fn attend_cached(
    q: &Tensor,
    cache: &KvCache,
    rows: (&PassRows, Option<usize>),
    scores: Scores,
) -> Result<Tensor, ModelError> {
    by_rows(&attend_by_head(q, cache, rows, scores)?)
}

/// As [`attend_cached`], with the answers of a head together: -> `[heads, m, width of a value]`.
///
/// # Errors
/// When shapes do not fit.
pub fn attend_by_head(
    q: &Tensor,
    cache: &KvCache,
    (rows, window): (&PassRows, Option<usize>),
    scores: Scores,
) -> Result<Tensor, ModelError> {
    if !runs_one_by_one(cache, rows) {
        let (keys, values) = cache.range(rows.first(window)..rows.end())?;
        return mix(q, (&keys, &values), rows.mask(window, keys.device())?.as_ref(), scores);
    }
    let one = |row| {
        let (keys, values) = cache.seen(&rows.seen(row, window))?;
        mix(&q.narrow(1, row, 1)?, (&keys, &values), None, scores)
    };
    Ok(Tensor::cat(&(0..rows.count()).map(one).collect::<Result<Vec<_>, _>>()?, 1)?)
}

/// `[heads, m, width] -> [m, heads · width]`
fn by_rows(answers: &Tensor) -> Result<Tensor, ModelError> {
    Ok(answers.transpose(0, 1)?.contiguous()?.flatten_from(1)?)
}

/// Attention of `q [heads, m, hd]` over keys and values `[kv_heads, n, …]`, f32 or halves: softmax(scores + mask)·v -> `[m,
/// heads · width of a value]`. Query heads that share a key/value head (Ainslie et al., 2023) are stacked as rows of one product.
/// `mask`: `[m, n]`.
///
/// # Errors
/// If shapes do not fit.
pub fn attend(
    q: &Tensor,
    (keys, values): (&Tensor, &Tensor),
    mask: Option<&Tensor>,
    scores: Scores,
) -> Result<Tensor, ModelError> {
    by_rows(&mix(q, (keys, values), mask, scores)?)
}

/// The same, `-> [heads, m, width of a value]`.
fn mix(
    q: &Tensor,
    (keys, values): (&Tensor, &Tensor),
    mask: Option<&Tensor>,
    scores: Scores,
) -> Result<Tensor, ModelError> {
    let (heads, m, head_dim) = q.dims3()?;
    let (kv_heads, n, _) = keys.dims3()?;
    let stacked = q.contiguous()?.reshape((kv_heads, heads / kv_heads * m, head_dim))?;
    let products = stacked.matmul(&widened(keys)?.t()?)?; // wide keys and values never exist together
    let mut scores = scores.of(products)?.reshape((heads, m, n))?;
    if let Some(mask) = mask {
        scores = scores.broadcast_add(mask)?;
    }
    let weights = candle_nn::ops::softmax_last_dim(&scores)?.reshape((kv_heads, heads / kv_heads * m, n))?;
    drop(scores);
    // candle multiplies rows with gaps between them, as those of latents, only on the CPU
    let (values, width) = (widened(values)?, values.dim(2)?);
    let has_gaps = values.stride().get(1) != Some(&width) && !values.device().is_cpu();
    let values = if has_gaps { values.contiguous()? } else { values };
    Ok(weights.matmul(&values)?.reshape((heads, m, width))?)
}

/// Cached numbers as f32: products are summed in f32, and scores, which may be large, keep its precision.
///
/// # Errors
/// When memory is short.
pub fn widened(cached: &Tensor) -> Result<Tensor, ModelError> {
    Ok(cached.to_dtype(DType::F32)?)
}
