//! Weights of one transformer block.

use super::matrix::Matrix;
use super::shape::Shape;
use super::style::Style;

/// Weights of a block.
#[derive(Clone, Debug)]
pub struct BlockWeights {
    /// `[d_model]`
    pub attn_norm: wgpu::Buffer,
    /// `[(heads + 2 kv_heads) head_dim, d_model]`
    pub qkv: Matrix,
    /// `[(heads + 2 kv_heads) head_dim]`
    pub bias: Option<wgpu::Buffer>,
    /// Of queries, then of keys: `[2][head_dim]`.
    pub head_norms: Option<wgpu::Buffer>,
    /// `[d_model, heads head_dim]`
    pub out: Matrix,
    /// `[d_model]`
    pub ffn_norm: wgpu::Buffer,
    /// `[d_ff, d_model]`
    pub gate: Matrix,
    /// `[d_ff, d_model]`, in the form of `gate`
    pub up: Matrix,
    /// `[d_model, d_ff]`
    pub down: Matrix,
    /// What it has besides.
    pub style: Style,
}

impl BlockWeights {
    /// Its sizes in a model of these.
    pub(crate) fn shape(&self, model: &Shape) -> Shape {
        self.style.shape.unwrap_or(*model)
    }

    /// Bytes of keys and values of a position in a model of these sizes.
    #[must_use]
    pub fn kv_bytes(&self, model: &Shape) -> u64 {
        let has_none = self.style.delta.is_some() || self.style.reads.is_some();
        if has_none { 0 } else { self.shape(model).kv_bytes() }
    }

    /// Bytes of its matrices.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let input = self.style.layer_input.iter().flat_map(|input| [&input.gate, &input.project]);
        [&self.qkv, &self.out, &self.gate, &self.up, &self.down].into_iter().chain(input).map(Matrix::bytes).sum()
    }
}

/// Width of the inputs of all blocks.
pub(crate) fn inputs_width(blocks: &[BlockWeights]) -> usize {
    let width = blocks.iter().filter_map(|block| block.style.layer_input.as_ref()).map(|input| input.gate.rows()).max();
    width.unwrap_or(0) * blocks.len()
}
