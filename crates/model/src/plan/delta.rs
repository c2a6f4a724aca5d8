//! The mixer that keeps a state instead of a list of positions.

use super::matrix::{Matrix, Norm, Tensor, Vector};

/// Gated DeltaNet (Yang et al., arXiv:2412.06464): a short causal convolution, then a matrix of state per head that forgets,
/// corrects itself towards the new value, and answers the query.
///
/// ```text
///   q, k, v = silu(convolution over the last rows of mixed · x)
///   forget  = exp(−exp(A) · softplus(α + dt)),   strength = sigmoid(β)
///   S       = forget · S + strength · (v − forget · S k) kᵀ
///   update  = W_o (norm(S q) ⊙ silu(gate · x))
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Delta {
    /// Sizes.
    pub shape: DeltaShape,
    /// Which key head a value head reads.
    pub order: HeadOrder,
    /// `[channels, d]`: queries, keys, values of all heads.
    pub mixed: Matrix,
    /// `[value width, d]`
    pub gate: Matrix,
    /// `[value heads, d]`: α, how much is forgotten.
    pub alpha: Matrix,
    /// `[value heads, d]`: β, how strongly the state is corrected.
    pub beta: Matrix,
    /// The convolution: `[channels, taps]`, or `[channels, 1, taps]`.
    pub convolution: Tensor,
    /// One number per value head.
    pub decay: Decay,
    /// Added to α, one number per value head.
    pub dt: Vector,
    /// Norm of each value head's answer.
    pub norm: Norm,
    /// `[d, value width]`
    pub o: Matrix,
}

/// How `A` is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decay {
    /// As it was trained.
    Log(Vector),
    /// As −exp(A).
    Negative(Vector),
}

/// Which key head a value head reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadOrder {
    /// Value heads of one key head are adjacent: Hugging Face.
    Grouped,
    /// Value head j reads key head j modulo their number: GGUF.
    Tiled,
}

/// Sizes of a Gated DeltaNet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaShape {
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Heads of values; a multiple.
    pub value_heads: usize,
    /// Width of a query or key.
    pub key_dim: usize,
    /// Width of a value.
    pub value_dim: usize,
    /// Tokens that the convolution sees, including the row's own.
    pub kernel: usize,
}

impl DeltaShape {
    /// Width of the convolution: queries, keys, values.
    #[must_use]
    pub fn channels(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.value_width()
    }

    /// Width of all values.
    #[must_use]
    pub fn value_width(&self) -> usize {
        self.value_heads * self.value_dim
    }

    /// Bytes of one layer's state: matrices and convolution window, f32.
    #[must_use]
    pub fn state_bytes(&self) -> u64 {
        let matrices = self.value_width() * self.key_dim;
        4 * (matrices + (self.kernel - 1) * self.channels()) as u64
    }

    /// Bytes of one row's inputs, from which a state can be computed again, f32.
    #[must_use]
    pub fn input_bytes(&self) -> u64 {
        4 * (self.channels() + 2 * self.value_heads) as u64
    }
}
