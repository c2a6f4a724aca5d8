//! Embeddings of a token for each block: the table that all share, and how a block adds its part.

use super::matrix::Matrix;

/// Where the inputs of all blocks come from.
#[derive(Clone, Debug)]
pub struct LayerTable {
    /// Width of a block's input: a multiple of 32.
    pub width: usize,
    /// `[tokens, blocks · width]`
    pub table: Matrix,
    /// `[blocks · width, d_model]`
    pub project: Matrix,
    /// `[width]`
    pub norm: wgpu::Buffer,
}

/// How a block adds its input. Invariant: one kernel sees both matrices whole, in one form, and `width` is at most `d_model`.
#[derive(Clone, Debug)]
pub struct LayerInput {
    /// `[width, d_model]`
    pub(crate) gate: Matrix,
    /// `[d_model, width]`
    pub(crate) project: Matrix,
    /// `[d_model]`
    pub(crate) norm: wgpu::Buffer,
    /// Number of the block.
    pub(crate) index: usize,
}

impl LayerInput {
    /// Of block number `index`: the gate `[width, d_model]`, the projection `[d_model, width]`, and the norm of what is
    /// projected, `[d_model]`. `None` if the kernel does not run them: they differ in form, are too large, or `width` is
    /// larger than `d_model`.
    #[must_use]
    pub fn new([gate, project]: [Matrix; 2], norm: wgpu::Buffer, index: usize) -> Option<Self> {
        let is_whole = gate.parts.len() == 1 && project.parts.len() == 1 && gate.form() == project.form();
        (is_whole && gate.rows() <= gate.k && (gate.rows(), gate.k) == (project.k, project.rows())).then_some(Self {
            gate,
            project,
            norm,
            index,
        })
    }
}

impl LayerTable {
    /// Bytes of its matrices.
    pub(crate) fn bytes(&self) -> u64 {
        self.table.bytes() + self.project.bytes()
    }
}
