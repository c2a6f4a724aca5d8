//! Weights of feed-forward layers: a dense one, or experts.

use super::matrix::Matrix;

/// A dense layer, or an expert that every row runs.
#[derive(Clone, Debug)]
pub struct DenseWeights {
    /// `[d_ff, d_model]`
    pub gate: Matrix,
    /// `[d_ff, d_model]`, in the form of `gate`
    pub up: Matrix,
    /// `[d_model, d_ff]`
    pub down: Matrix,
}

/// Most experts that the kernel that chooses them sees.
pub const MAX_EXPERTS: usize = 1024;

/// Experts, of which each row runs those with the largest probabilities. The rows of one expert's matrices follow those of
/// the expert before it.
#[derive(Clone, Debug)]
pub struct ExpertWeights {
    /// Number of experts, at most [`MAX_EXPERTS`].
    pub count: usize,
    /// Experts of a row.
    pub used: usize,
    /// Width of an expert: a multiple of 32.
    pub width: usize,
    /// Whether the weights of a row's experts are scaled to the sum 1.
    pub rescaled: bool,
    /// Factor of the weights after that.
    pub factor: f32,
    /// `[count, d_model]`, a number for each expert, in a form of numbers; one row more if the dense layer beside them has
    /// a gate, whose sigmoid its result is multiplied by.
    pub router: Matrix,
    /// `[count width, d_model]`
    pub gate: Matrix,
    /// `[count width, d_model]`, in the form of `gate`
    pub up: Matrix,
    /// `[count d_model, width]`
    pub down: Matrix,
}

impl DenseWeights {
    /// Bytes of its matrices.
    pub(crate) fn bytes(&self) -> u64 {
        self.gate.bytes() + self.up.bytes() + self.down.bytes()
    }
}

impl ExpertWeights {
    /// Bytes of the matrices of all experts.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.gate.bytes() + self.up.bytes() + self.down.bytes()
    }

    /// Bytes of the matrices of those that a row runs.
    #[must_use]
    pub fn row_bytes(&self) -> u64 {
        self.bytes() / self.count as u64 * self.used as u64
    }

    /// Whether the dense layer beside them has a gate.
    pub(crate) fn has_gate(&self) -> bool {
        self.router.rows() > self.count
    }
}
