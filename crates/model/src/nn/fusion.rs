//! Reading several of a target's states: their norms, and a matrix that adds them to the state that a module's slots read.
//!
//! `h + fuse · [s_1 / rms(s_1) ; s_2 / rms(s_2) ; …]`, the s being the residual stream after some of the target's blocks
//! (after EAGLE-3, arXiv 2503.01840, section 3.1). The native kernels compute it in [`native`](crate::native).

use candle_core::Tensor;

use crate::ModelError;
use crate::nn::{Linear, RmsNorm};

/// Norms of the target's states before they are fused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatesNorm {
    /// None.
    #[default]
    None,
    /// One over all states together: `norm_before_fc`, `input_norm`.
    Together,
    /// One for each: `fc_norm`.
    Each,
}

/// The matrix and what it reads.
#[derive(Clone, Debug)]
pub struct Fuse<M, N> {
    blocks: Vec<usize>,
    pub(crate) matrix: M, // [d, blocks · d]
    pub(crate) units: Vec<N>,
}

impl<M, N: Clone> Fuse<M, N> {
    /// Reads the states after so many blocks each; `unit` is a norm of a state with all weights 1.
    pub fn new(blocks: &[usize], matrix: M, unit: N) -> Self {
        Self { blocks: blocks.to_vec(), matrix, units: vec![unit; blocks.len()] }
    }

    /// Blocks after which it reads.
    pub fn blocks(&self) -> &[usize] {
        &self.blocks
    }
}

impl Fuse<Linear, RmsNorm> {
    /// `[m, (1 + blocks) d] -> [m, d]`
    ///
    /// # Errors
    /// When rows are of another width.
    pub fn forward(&self, rows: &Tensor) -> Result<Tensor, ModelError> {
        let d = rows.dim(1)? / (1 + self.blocks.len());
        let states = norm_states(&rows.narrow(1, d, self.blocks.len() * d)?, &self.units, StatesNorm::Each)?;
        Ok((rows.narrow(1, 0, d)? + self.matrix.forward(&states)?)?)
    }
}

/// States side by side, `[m, states · d]`, normed together, each, or not at all.
///
/// # Errors
/// When there are fewer norms, or rows are of another width.
pub fn norm_states(states: &Tensor, norms: &[RmsNorm], how: StatesNorm) -> Result<Tensor, ModelError> {
    match (how, norms) {
        (StatesNorm::None, _) | (_, []) => Ok(states.clone()),
        (StatesNorm::Together, [norm, ..]) => norm.forward(states),
        (StatesNorm::Each, norms) => {
            let width = states.dim(1)? / norms.len();
            let normed = norms.iter().enumerate();
            let normed = normed.map(|(i, norm)| norm.forward(&states.narrow(1, i * width, width)?));
            Ok(Tensor::cat(&normed.collect::<Result<Vec<_>, _>>()?, 1)?)
        }
    }
}
