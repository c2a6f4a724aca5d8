//! All weights of a draft module of DeepSeek-V3 shape.

use super::block::BlockWeights;
use super::matrix::Matrix;
use super::shape::Shape;

/// Weights of a module.
#[derive(Clone, Debug)]
pub struct ModuleWeights {
    /// Sizes of its block; as wide as the target.
    pub shape: Shape,
    /// `[d]`
    pub embedding_norm: wgpu::Buffer,
    /// `[d]`
    pub hidden_norm: wgpu::Buffer,
    /// For each further state of the target that is added to the hidden state: `[d, d]`.
    pub fuse: Vec<Matrix>,
    /// Halves of the projection, in the order of its input: each `[d, d]`.
    pub project: [Matrix; 2],
    /// The block.
    pub block: BlockWeights,
    /// `[d]`
    pub final_norm: wgpu::Buffer,
    /// `[draft vocabulary, d]`
    pub head: Matrix,
    /// Token of each row of the head.
    pub vocab: Vec<u32>,
    /// Most rows of the target's head that can join.
    pub room: usize,
    /// Cosine and sine, one position more than slots.
    pub angles: wgpu::Buffer,
}
