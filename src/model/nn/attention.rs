//! Attention on candle over a [`KvCache`]: causal, within a window, and over trees.
//!
//! Invariant: up to [`ROW_BY_ROW`] rows attend one at a time with the shapes of plain decoding, so a row's result does
//! not depend on the rows beside it.

use candle_core::Tensor;

use crate::model::ModelError;
use crate::model::nn::{KvCache, ROW_BY_ROW, TreeRows};

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
        Ok(match self.softcap {
            Some(cap) => ((scores / cap)?.tanh()? * cap)?,
            None => scores,
        })
    }
}

/// Where the rows of a pass are in a cache, which contains them already.
#[derive(Clone, Copy)]
pub struct CachedRows<'a> {
    /// Positions before the rows.
    pub start: usize,
    /// The rows' tree; `None` if every row continues the one before it.
    pub tree: Option<&'a TreeRows>,
    /// Positions that a row sees, including its own; `None` = all.
    pub window: Option<usize>,
}

/// Attention of `q [heads, m, hd]` over what each row sees of the cache: -> `[m, heads · hd]`.
///
/// # Errors
/// When shapes do not fit.
pub fn attend_cached(q: &Tensor, cache: &KvCache, rows: CachedRows<'_>, scores: Scores) -> Result<Tensor, ModelError> {
    let CachedRows { start, tree, window } = rows;
    let m = q.dim(1)?;
    let first = |end: usize| end.saturating_sub(window.unwrap_or(end));
    let row = |i: usize| q.narrow(1, i, 1);
    if let Some(tree) = tree {
        let rows = tree.paths().iter().enumerate().map(|(i, path)| {
            let seen: Vec<usize> = path.iter().map(|row| start + row).collect();
            let from = first(start + seen.len());
            let (keys, values) = cache.range_and(from.min(start)..start, &seen[from.saturating_sub(start)..])?;
            attend(&row(i)?, (&keys, &values), None, scores)
        });
        return Ok(Tensor::cat(&rows.collect::<Result<Vec<_>, _>>()?, 0)?);
    }
    if m <= ROW_BY_ROW {
        let rows = (start + 1..=start + m).enumerate().map(|(i, end)| {
            let (keys, values) = cache.range(first(end)..end)?;
            attend(&row(i)?, (&keys, &values), None, scores)
        });
        return Ok(Tensor::cat(&rows.collect::<Result<Vec<_>, _>>()?, 0)?);
    }
    let (keys, values) = cache.range(first(start + 1)..start + m)?;
    attend(q, (&keys, &values), window, scores)
}

/// Causal attention of `q [heads, m, hd]` over keys and values `[kv_heads, n, hd]`, whose last position is the last
/// row's: softmax(scores)·v -> `[m, heads · hd]`. Query heads that share a key/value head (Ainslie et al., 2023) are
/// stacked as rows of one product. A row sees `window` positions up to its own; a single row sees all that it is given.
///
/// # Errors
/// If shapes do not fit.
pub fn attend(
    q: &Tensor,
    (keys, values): (&Tensor, &Tensor),
    window: Option<usize>,
    scores: Scores,
) -> Result<Tensor, ModelError> {
    let (heads, m, head_dim) = q.dims3()?;
    let (kv_heads, n, _) = keys.dims3()?;
    let stacked = q.contiguous()?.reshape((kv_heads, heads / kv_heads * m, head_dim))?;
    let mut scores = scores.of(stacked.matmul(&keys.t()?)?)?.reshape((heads, m, n))?;
    if m > 1 {
        let hides = |row: usize| {
            let at = n - m + row;
            (0..n).map(move |column| u8::from(column > at || window.is_some_and(|window| column + window <= at)))
        };
        let mask: Vec<u8> = (0..m).flat_map(hides).collect();
        let mask = Tensor::from_vec(mask, (m, n), q.device())?; // 1 = hidden
        let hidden = Tensor::new(f32::NEG_INFINITY, q.device())?.broadcast_as((heads, m, n))?;
        scores = mask.broadcast_as((heads, m, n))?.where_cond(&hidden, &scores)?;
    }
    let weights = candle_nn::ops::softmax_last_dim(&scores)?.reshape((kv_heads, heads / kv_heads * m, n))?;
    let mixed = weights.matmul(values)?.reshape((heads, m, head_dim))?;
    Ok(mixed.transpose(0, 1)?.contiguous()?.reshape((m, heads * head_dim))?)
}
