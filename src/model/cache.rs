//! A KV cache that can be cut back.
//!
//! Invariant: positions `0..len` hold what was appended; those behind are garbage that the next
//! append overwrites. Cutting back is therefore a number, not a copy.

use candle_core::{DType, Device, Tensor};

use super::ModelError;

/// Keys and values of one transformer block.
pub struct KvCache {
    keys: Tensor,   // [kv_heads, ctx, head_dim]
    values: Tensor, // [kv_heads, ctx, head_dim]
    len: usize,
}

impl KvCache {
    /// An empty cache for `ctx` positions.
    ///
    /// # Errors
    /// When memory is short.
    pub fn new(kv_heads: usize, ctx: usize, head_dim: usize, device: &Device) -> Result<Self, ModelError> {
        let zeros = || Tensor::zeros((kv_heads, ctx, head_dim), DType::F32, device);
        Ok(Self { keys: zeros()?, values: zeros()?, len: 0 })
    }

    /// Positions held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends `m` positions, `[kv_heads, m, head_dim]` each.
    ///
    /// # Errors
    /// When they do not fit.
    pub fn append(&mut self, keys: &Tensor, values: &Tensor) -> Result<(), ModelError> {
        let m = keys.dim(1)?;
        let ctx_len = self.keys.dim(1)?;
        if self.len + m > ctx_len {
            return Err(ModelError::ContextFull { needed: self.len + m, ctx_len });
        }
        self.keys.slice_set(&keys.contiguous()?, 1, self.len)?;
        self.values.slice_set(&values.contiguous()?, 1, self.len)?;
        self.len += m;
        Ok(())
    }

    /// Keys and values of the first `len` positions, `[kv_heads, len, head_dim]`.
    ///
    /// # Errors
    /// When there are not so many.
    pub fn prefix(&self, len: usize) -> Result<(Tensor, Tensor), ModelError> {
        Ok((self.keys.narrow(1, 0, len)?, self.values.narrow(1, 0, len)?))
    }

    /// Keys and values of these positions, `[kv_heads, …, head_dim]`.
    ///
    /// # Errors
    /// When there are not so many.
    pub fn range(&self, range: std::ops::Range<usize>) -> Result<(Tensor, Tensor), ModelError> {
        Ok((self.keys.narrow(1, range.start, range.len())?, self.values.narrow(1, range.start, range.len())?))
    }

    /// Keys and values of the first `len` positions and then of these, `[kv_heads, …, head_dim]`.
    ///
    /// # Errors
    /// When there are not so many.
    pub fn prefix_and(&self, len: usize, positions: &[usize]) -> Result<(Tensor, Tensor), ModelError> {
        let ids: Vec<u32> = (0..len).chain(positions.iter().copied()).map(|at| at as u32).collect();
        let count = ids.len();
        let ids = Tensor::from_vec(ids, count, self.keys.device())?;
        Ok((self.keys.index_select(&ids, 1)?, self.values.index_select(&ids, 1)?))
    }

    /// Keeps the first `base` positions and then those of these rows behind them.
    ///
    /// # Errors
    /// When there are no such rows.
    pub fn retain(&mut self, base: usize, path: &[usize]) -> Result<(), ModelError> {
        let rows: Vec<u32> = path.iter().map(|row| (base + row) as u32).collect();
        let rows = Tensor::from_vec(rows, path.len(), self.keys.device())?;
        let (keys, values) = (self.keys.index_select(&rows, 1)?, self.values.index_select(&rows, 1)?);
        self.len = base;
        self.append(&keys, &values)
    }

    /// Drops positions `len..`; more than there are is no change.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// A copy that shares no memory.
    ///
    /// # Errors
    /// When memory is short.
    pub fn copy(&self) -> Result<Self, ModelError> {
        let (kv_heads, ctx, head_dim) = self.keys.dims3()?;
        let mut copy = Self::new(kv_heads, ctx, head_dim, self.keys.device())?;
        if self.len > 0 {
            let (keys, values) = self.prefix(self.len)?;
            copy.append(&keys, &values)?;
        }
        Ok(copy)
    }

    /// Bytes one position takes.
    #[must_use]
    pub fn bytes_per_position(kv_heads: usize, head_dim: usize) -> u64 {
        (2 * kv_heads * head_dim * DType::F32.size_in_bytes()) as u64
    }
}
