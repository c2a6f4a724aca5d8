//! All weights of a target.

use std::sync::Arc;

use super::block::BlockWeights;
use super::matrix::Matrix;
use super::shape::Shape;
use super::style::EndStyle;
use crate::GpuError;
use crate::device::Gpu;

/// Weights of a target.
#[derive(Debug)]
pub struct Network {
    /// Sizes of every block that has none of its own.
    pub shape: Shape,
    /// The blocks.
    pub blocks: Vec<BlockWeights>,
    /// `[d_model]`
    pub final_norm: wgpu::Buffer,
    /// `None` if the head serves as embedding too.
    pub embedding: Option<Matrix>,
    /// `[vocabulary, d_model]`
    pub head: Matrix,
    /// Cosine and sine of every position and pair, `[positions][head_dim / 2]`.
    pub angles: wgpu::Buffer,
    /// Positions of a cache.
    pub ctx_len: usize,
    /// What it has besides.
    pub style: EndStyle,
    /// Where they lie; dropped last.
    pub gpu: Arc<Gpu>,
}

impl Network {
    /// Bytes of its matrices.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let ends = self.head.bytes() + self.embedding.as_ref().map_or(0, Matrix::bytes);
        let ends = ends + self.style.layer_table.as_ref().map_or(0, |table| table.bytes());
        ends + self.blocks.iter().map(BlockWeights::bytes).sum::<u64>()
    }

    /// Bytes of the matrices that a pass reads whole: of an embedding that is not the head, and of a table of what blocks
    /// add, it looks rows up.
    #[must_use]
    pub fn pass_bytes(&self) -> u64 {
        let project = self.style.layer_table.as_ref().map_or(0, |of| of.project.bytes());
        self.head.bytes() + project + self.blocks.iter().map(BlockWeights::bytes).sum::<u64>()
    }

    /// Whether kernels can see the cache of its context.
    ///
    /// # Errors
    /// [`GpuError::TooLarge`] with the number of positions that fit.
    pub(crate) fn check_context(&self) -> Result<(), GpuError> {
        let shapes =
            self.blocks.iter().filter(|block| block.style.delta.is_none()).map(|block| block.shape(&self.shape));
        shapes.into_iter().try_for_each(|shape| shape.check_context(self.gpu.info(), self.ctx_len))
    }

    /// The embedding, and what it is multiplied by.
    pub(crate) fn scaled_table(&self) -> (&Matrix, f32) {
        (self.embedding.as_ref().unwrap_or(&self.head), self.style.embedding_scale)
    }
}
