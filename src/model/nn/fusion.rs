//! What lies within the target, added to the state that a module's slots read, on candle.
//!
//! `h + fuse · [s_1 / rms(s_1) ; s_2 / rms(s_2) ; …]`, the s being the residual stream behind some of the target's blocks
//! (after EAGLE-3, arXiv 2503.01840, section 3.1). Invariant: rows are read in the order of [`Fuse::tap`].

use candle_core::{DType, Device, Tensor};

use crate::model::nn::linear::Linear;
use crate::model::nn::norm::RmsNorm;
use crate::model::{ModelError, Tap};

/// The matrix and what it reads.
#[derive(Clone)]
pub struct Fuse {
    blocks: Vec<usize>,
    matrix: Linear, // [d, blocks · d]
    unit: RmsNorm,
}

impl Fuse {
    /// Reads the states behind so many blocks each, of width `d`.
    ///
    /// # Errors
    /// When memory is short.
    pub fn new(blocks: &[usize], matrix: Linear, (d, eps): (usize, f32), device: &Device) -> Result<Self, ModelError> {
        let unit = RmsNorm::new(&Tensor::ones(d, DType::F32, device)?, eps)?;
        Ok(Self { blocks: blocks.to_vec(), matrix, unit })
    }

    /// Bytes that the matrix takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.matrix.bytes()
    }

    /// The tap of a module that else reads this one.
    #[must_use]
    pub fn tap(&self, own: &Tap) -> Tap {
        own.and_behind(&self.blocks)
    }

    /// `[m, (1 + blocks) d] -> [m, d]`
    ///
    /// # Errors
    /// When rows are of another width.
    pub fn forward(&self, rows: &Tensor) -> Result<Tensor, ModelError> {
        let d = rows.dim(1)? / (1 + self.blocks.len());
        let part = |index: usize| -> Result<Tensor, ModelError> { Ok(rows.narrow(1, index * d, d)?.contiguous()?) };
        let states = (1..=self.blocks.len()).map(|index| self.unit.forward(&part(index)?));
        let states = states.collect::<Result<Vec<_>, _>>()?;
        Ok((part(0)? + self.matrix.forward(&Tensor::cat(&states, 1)?)?)?)
    }
}
