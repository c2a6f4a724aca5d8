//! Sizes and weights of a recurrent layer: Gated DeltaNet with its short convolution.

use crate::kernels::{MAX_ROWS, PROMPT_ROWS};

/// Widest key that the kernels run.
pub const MAX_KEY_DIM: usize = 256;

/// Sizes of a recurrent layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaShape {
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Heads of values; a multiple.
    pub value_heads: usize,
    /// Width of a query or key: a multiple of 4, at most [`MAX_KEY_DIM`].
    pub key_dim: usize,
    /// Width of a value: 16, or a multiple of 32.
    pub value_dim: usize,
    /// Rows that the convolution sees, its own included; at most 64.
    pub taps: usize,
    /// Whether value heads of one key head are adjacent; else head j reads key head j modulo their number.
    pub grouped: bool,
}

impl DeltaShape {
    /// Width of queries, keys and values together.
    #[must_use]
    pub const fn channels(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.value_width()
    }

    /// Width of all values.
    #[must_use]
    pub const fn value_width(&self) -> usize {
        self.value_heads * self.value_dim
    }

    /// Width of what is projected: queries, keys, values, gates, α and β.
    #[must_use]
    pub const fn projected(&self) -> usize {
        self.channels() + self.value_width() + 2 * self.value_heads
    }

    /// Why the kernels do not run it.
    #[must_use]
    pub fn lacks(&self) -> Option<String> {
        let key = self.key_dim.is_multiple_of(4) && (4..=MAX_KEY_DIM).contains(&self.key_dim);
        let value = self.value_dim == 16 || (self.value_dim > 0 && self.value_dim.is_multiple_of(32));
        let heads = self.value_width().is_multiple_of(32) && (1..=64).contains(&self.taps);
        (!(key && value && heads)).then(|| {
            format!(
                "recurrent layers with keys of {} and {} values of {} after {} taps",
                self.key_dim, self.value_heads, self.value_dim, self.taps
            )
        })
    }

    /// Positions of the rings: at most two passes of rows run again, then a pass, and the convolution sees rows before. A
    /// prompt's longer passes run none again.
    pub(crate) const fn ring(&self) -> usize {
        let rows = if PROMPT_ROWS > 3 * MAX_ROWS { PROMPT_ROWS } else { 3 * MAX_ROWS };
        (rows + self.taps - 1).next_multiple_of(MAX_ROWS)
    }

    /// Numbers of a layer's state.
    pub(crate) const fn state(&self) -> usize {
        self.value_width() * self.key_dim
    }

    /// Bytes of a layer's state, and of what is kept of one row.
    #[must_use]
    pub const fn bytes(&self) -> [u64; 2] {
        [4 * self.state() as u64, 4 * 2 * (self.channels() + self.value_heads) as u64]
    }
}

/// Weights of a recurrent layer besides those of a block, whose `qkv` yields queries, keys, values, gates, α and β, and
/// whose `out` reads the answers.
#[derive(Clone, Debug)]
pub struct DeltaWeights {
    /// Sizes.
    pub shape: DeltaShape,
    /// `[channels][taps]`
    pub taps: wgpu::Buffer,
    /// `−e^A_log` of each value head, then the bias of α of each.
    pub heads: wgpu::Buffer,
    /// `[value_dim]`
    pub norm: wgpu::Buffer,
}
