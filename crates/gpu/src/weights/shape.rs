//! Sizes of a block, and what kernels can run of them.

use crate::GpuError;
use crate::device::AdapterInfo;
use crate::kernels::{MAX_ROWS, SEGMENT};

/// Sizes of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Width of the residual stream; a multiple of 32, as the other widths.
    pub d_model: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads, a divisor.
    pub kv_heads: usize,
    /// Width of a head, at most [`MAX_HEAD_DIM`].
    pub head_dim: usize,
    /// Width of the feed-forward layer.
    pub d_ff: usize,
    /// Added to the mean of squares in norms.
    pub eps: f32,
}

/// Widest head that the kernels run.
pub const MAX_HEAD_DIM: usize = 512;

impl Shape {
    /// Heads that `qkv` yields.
    pub(crate) fn heads_in_qkv(&self) -> usize {
        self.heads + 2 * self.kv_heads
    }

    /// Bytes of what segments of attention leave for joining, for [`MAX_ROWS`] rows.
    fn attention_bytes(&self, segments: usize) -> u64 {
        4 * (MAX_ROWS * self.heads * segments * (self.head_dim + 2)) as u64
    }

    /// Whether kernels see the keys, or the values, of so many positions in one block at once, and what attention over them
    /// needs. Memory as a whole is known only when it is allocated: the APIs do not tell a program how much is free.
    ///
    /// # Errors
    /// [`GpuError::TooLarge`] with the number of positions that fit.
    pub fn check_context(&self, info: &AdapterInfo, ctx_len: usize) -> Result<(), GpuError> {
        let (most, keys, segment) = (info.max_binding, self.kv_bytes() / 2, self.attention_bytes(1));
        let positions = (most / keys.max(1)).min(most / segment.max(1) * SEGMENT as u64);
        if ctx_len as u64 <= positions {
            return Ok(());
        }
        let attention = self.attention_bytes(ctx_len.div_ceil(SEGMENT));
        let bytes = attention.max(ctx_len as u64 * keys);
        let (what, smaller) = (format!("a context of {ctx_len} positions"), format!("--ctx {positions} or less"));
        Err(GpuError::TooLarge { what, bytes, most, smaller })
    }

    /// Bytes that keys and values of a position take in one block.
    #[must_use]
    pub fn kv_bytes(&self) -> u64 {
        (2 * 2 * self.kv_heads * self.head_dim) as u64
    }
}

/// Widest head of which eight rows fit into a workgroup's memory; passes of more than [`MAX_ROWS`] rows have none wider.
pub(crate) const MAX_PROMPT_HEAD: usize = 256;
