//! Weights of one transformer block.

use super::feed::{DenseWeights, ExpertWeights};
use super::matrix::Matrix;
use super::shape::Shape;
use super::style::Style;

/// Weights of a block.
#[derive(Clone, Debug)]
pub struct BlockWeights {
    /// `[d_model]`; `None`: attention reads the stream as it is.
    pub attn_norm: Option<wgpu::Buffer>,
    /// `[(heads + 2 kv_heads) head_dim, d_model]`
    pub qkv: Matrix,
    /// `[(heads + 2 kv_heads) head_dim]`
    pub bias: Option<wgpu::Buffer>,
    /// Of queries, then of keys: `[2][head_dim]`.
    pub head_norms: Option<wgpu::Buffer>,
    /// `[d_model, heads head_dim]`
    pub out: Matrix,
    /// `[d_model]`; `None`: the feed-forward layer reads the stream as it is.
    pub ffn_norm: Option<wgpu::Buffer>,
    /// The feed-forward layer; beside experts the one that every row runs too.
    pub dense: Option<DenseWeights>,
    /// Experts, whose outputs are neither normed nor scaled before they are added.
    pub experts: Option<ExpertWeights>,
    /// What it has besides.
    pub style: Style,
}

impl BlockWeights {
    /// Its sizes in a model of these.
    pub(crate) fn shape(&self, model: &Shape) -> Shape {
        self.style.shape.unwrap_or(*model)
    }

    /// Whether its outputs are added by launches of their own, since more happens to them than that.
    pub(crate) fn adds_apart(&self) -> bool {
        self.style.post_norms.is_some() || self.style.added.is_some()
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
        let matrices = [&self.qkv, &self.out].into_iter().chain(input).map(Matrix::bytes).sum::<u64>();
        let dense = self.dense.as_ref().map_or(0, DenseWeights::bytes);
        matrices + dense + self.experts.as_ref().map_or(0, |experts| experts.router.bytes() + experts.bytes())
    }
}

/// Width of the inputs of all blocks.
pub(crate) fn inputs_width(blocks: &[BlockWeights]) -> usize {
    let width = blocks.iter().filter_map(|block| block.style.layer_input.as_ref()).map(|input| input.gate.rows()).max();
    width.unwrap_or(0) * blocks.len()
}
