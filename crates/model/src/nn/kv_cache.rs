//! A KV cache that can be cut back.
//!
//! With latent attention, the cached row of a position is the key and, its first part, the value.
//!
//! Keys and values are f32 or IEEE halves, to which they are rounded when they are appended: number by number, so it does
//! not matter how rows are cut into passes.
//!
//! Invariant: positions `0..len` contain what was appended; those after are garbage that the next append overwrites.
//! Cutting back is therefore a number, not a copy.

use candle_core::{DType, Device, Tensor};

use crate::ModelError;
use crate::nn::pass_rows::Seen;
use crate::options::PassForm;
use draftscope_host::fatal::OutOfMemory;

/// Keys and values of one transformer block.
pub struct KvCache {
    keys: Tensor, // [kv_heads, ctx, head_dim]
    values: Values,
    len: usize,
    form: PassForm,
}

/// Unwinds if the system refuses memory for so many numbers; a device reports errors itself.
fn ensure_room(numbers: usize, (device, form): (&Device, PassForm)) {
    if device.is_cpu() {
        OutOfMemory::unless_there_are(numbers.saturating_mul(form.kv_bytes()));
    }
}

/// Type of the cached numbers.
fn dtype(form: PassForm) -> DType {
    if form.halves { DType::F16 } else { DType::F32 }
}

/// Where the values are.
enum Values {
    /// `[kv_heads, ctx, head_dim]`
    Own(Tensor),
    /// The first part of each key, of this length.
    OfKeys(usize),
}

impl KvCache {
    /// An empty cache for `ctx` positions.
    ///
    /// # Errors
    /// When memory is short.
    pub fn new(kv_heads: usize, ctx: usize, head_dim: usize, on: (&Device, PassForm)) -> Result<Self, ModelError> {
        ensure_room(2 * kv_heads * ctx * head_dim, on);
        let (device, form) = on;
        let zeros = || Tensor::zeros((kv_heads, ctx, head_dim), dtype(form), device);
        Ok(Self { keys: zeros()?, values: Values::Own(zeros()?), len: 0, form })
    }

    /// An empty cache for `ctx` rows that are keys of `width` numbers, the first `value` of which are the value.
    ///
    /// # Errors
    /// When memory is short.
    pub fn latent(ctx: usize, (width, value): (usize, usize), on: (&Device, PassForm)) -> Result<Self, ModelError> {
        ensure_room(ctx * width, on);
        let (device, form) = on;
        let keys = Tensor::zeros((1, ctx, width), dtype(form), device)?;
        Ok(Self { keys, values: Values::OfKeys(value), len: 0, form })
    }

    /// Cached positions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the cache is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether all rows of a pass attend in one product.
    #[must_use]
    pub fn is_batched(&self) -> bool {
        self.form.batched
    }

    /// Whether all rows attend in one product from here on, or few do one by one; returns whether that is a change.
    pub fn set_batched(&mut self, batched: bool) -> bool {
        std::mem::replace(&mut self.form.batched, batched) != batched
    }

    /// Appends `m` positions, `[kv_heads, m, head_dim]` each; values that are part of the keys are not read.
    ///
    /// # Errors
    /// When they do not fit.
    pub fn append(&mut self, keys: &Tensor, values: &Tensor) -> Result<(), ModelError> {
        let m = keys.dim(1)?;
        let ctx_len = self.keys.dim(1)?;
        if self.len + m > ctx_len {
            return Err(ModelError::ContextFull { needed: self.len + m, ctx_len });
        }
        let stored = |rows: &Tensor| rows.to_dtype(dtype(self.form))?.contiguous();
        self.keys.slice_set(&stored(keys)?, 1, self.len)?;
        if let Values::Own(own) = &self.values {
            own.slice_set(&stored(values)?, 1, self.len)?;
        }
        self.len += m;
        Ok(())
    }

    /// Keys and values of the first `len` positions, `[kv_heads, len, head_dim]`.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn prefix(&self, len: usize) -> Result<(Tensor, Tensor), ModelError> {
        self.range(0..len)
    }

    /// Some keys and their values, which `pick` takes from all of them.
    fn with_values(
        &self,
        keys: Tensor,
        pick: impl FnOnce(&Tensor) -> candle_core::Result<Tensor>,
    ) -> Result<(Tensor, Tensor), ModelError> {
        let values = match &self.values {
            Values::Own(values) => pick(values)?,
            Values::OfKeys(width) => keys.narrow(2, 0, *width)?,
        };
        Ok((keys, values))
    }

    /// Keys and values of these positions as they are cached, `[kv_heads, …, head_dim]`.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn range(&self, range: std::ops::Range<usize>) -> Result<(Tensor, Tensor), ModelError> {
        let keys = self.keys.narrow(1, range.start, range.len())?;
        self.with_values(keys, |values| values.narrow(1, range.start, range.len()))
    }

    /// Keys and values of what a row sees, `[kv_heads, …, head_dim]`.
    ///
    /// # Errors
    /// If there are fewer.
    pub(crate) fn seen(&self, seen: &Seen) -> Result<(Tensor, Tensor), ModelError> {
        if let Some(range) = seen.whole() {
            return self.range(range);
        }
        let ids: Vec<u32> = seen.range.clone().chain(seen.and.iter().copied()).map(|at| at as u32).collect();
        let count = ids.len();
        let ids = Tensor::from_vec(ids, count, self.keys.device())?;
        self.with_values(self.keys.index_select(&ids, 1)?, |values| values.index_select(&ids, 1))
    }

    /// Keeps the first `base` positions and then those of these rows after them.
    ///
    /// # Errors
    /// When there are no such rows.
    pub fn retain(&mut self, base: usize, path: &[usize]) -> Result<(), ModelError> {
        let rows: Vec<u32> = path.iter().map(|row| (base + row) as u32).collect();
        let rows = Tensor::from_vec(rows, path.len(), self.keys.device())?;
        let (keys, values) =
            self.with_values(self.keys.index_select(&rows, 1)?, |values| values.index_select(&rows, 1))?;
        self.len = base;
        self.append(&keys, &values)
    }

    /// Drops positions `len..`; does nothing if there are fewer.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// A copy that shares no memory.
    ///
    /// # Errors
    /// When memory is short.
    pub fn copy(&self) -> Result<Self, ModelError> {
        let (kv_heads, ctx, head_dim) = self.keys.dims3()?;
        let mut copy = match self.values {
            Values::Own(_) => Self::new(kv_heads, ctx, head_dim, (self.keys.device(), self.form))?,
            Values::OfKeys(width) => Self::latent(ctx, (head_dim, width), (self.keys.device(), self.form))?,
        };
        if self.len > 0 {
            let (keys, values) = self.prefix(self.len)?;
            copy.append(&keys, &values)?;
        }
        Ok(copy)
    }

    /// Bytes one position of this cache takes.
    #[must_use]
    pub fn position_bytes(&self) -> u64 {
        let numbers = |rows: &Tensor| rows.dims()[0] * rows.dims()[2];
        let values = match &self.values {
            Values::Own(values) => numbers(values),
            Values::OfKeys(_) => 0,
        };
        ((numbers(&self.keys) + values) * self.form.kv_bytes()) as u64
    }
}
