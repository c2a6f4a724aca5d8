//! Embeddings of a token for each block: half from a table, half computed from its embedding, gated in the block.

use crate::block::{Binder, BlockWeights, Grid, Op, Shape};
use crate::buffers::{Acts, Scratch};
use crate::device::Dims;
use crate::kernel::Kernel;
use crate::matrix::Matrix;

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

/// How a block adds its input.
#[derive(Clone, Debug)]
pub struct LayerInput {
    /// `[width, d_model]`
    pub gate: Matrix,
    /// `[d_model, width]`
    pub project: Matrix,
    /// `[d_model]`
    pub norm: wgpu::Buffer,
    /// Number of the block.
    pub index: usize,
}

impl LayerTable {
    /// Bytes of its matrices.
    pub(crate) fn bytes(&self) -> u64 {
        self.table.bytes() + self.project.bytes()
    }
}

impl Binder<'_> {
    /// Inputs of all blocks for the embedded tokens in `scratch.x`.
    pub(crate) fn layer_inputs(
        &self,
        of: &LayerTable,
        tokens: &wgpu::Buffer,
        (scratch, shape): (&Scratch, &Shape),
    ) -> Vec<Op> {
        let (all, d) = (of.project.rows(), shape.d_model);
        let Scratch { x, acts, inputs, projected, .. } = scratch;
        let mut ops = vec![self.as_it_is((x, d), acts)];
        ops.extend(self.product((&of.project, acts), (projected, all, 0), false));
        ops.extend(self.embed((&of.table, (of.width as f32).sqrt()), tokens, inputs));
        let blocks = (all / of.width) as u32;
        let dims = Dims {
            a: [blocks, of.width as u32, 0, 0],
            c: [shape.eps, 1.0 / (d as f32).sqrt(), 0.0, 0.0],
            ..Dims::default()
        };
        ops.push(self.op(Kernel::LayerInputs, dims, Grid::PerRow(blocks), &[projected, &of.norm, inputs]));
        ops
    }

    /// Rows as they are, for a matrix to read.
    fn as_it_is(&self, (x, d): (&wgpu::Buffer, usize), out: &Acts) -> Op {
        let dims = Dims { a: [d as u32, 1, 0, 0], ..Dims::default() };
        self.op(Kernel::Norm, dims, Grid::Rows, &[x, x, &out.values, &out.codes, &out.scales])
    }

    /// A block's input, gated and projected, to `scratch.output`; `scratch.acts` has the rows that gate it.
    pub(crate) fn layer_input(&self, of: &LayerInput, (scratch, d): (&Scratch, usize)) -> Vec<Op> {
        let (width, all) = (of.gate.rows(), scratch.inputs_width);
        let Scratch { acts, q, inputs, inner, output, .. } = scratch;
        let mut ops = self.product((&of.gate, acts), (q, width, 0), false);
        let dims = Dims { a: [width, all, of.index * width, 0].map(|n| n as u32), ..Dims::default() };
        let gated = [q, inputs, &inner.values, &inner.codes, &inner.scales];
        ops.push(self.op(Kernel::GateInput, dims, Grid::Rows, &gated));
        ops.extend(self.product((&of.project, inner), (output, d, 0), false));
        ops
    }
}

/// Width of a block's input, and of those of all blocks.
pub(crate) fn widths(blocks: &[BlockWeights]) -> [usize; 2] {
    let width = blocks.iter().filter_map(|block| block.style.layer_input.as_ref()).map(|input| input.gate.rows()).max();
    [width.unwrap_or(0), width.unwrap_or(0) * blocks.len()]
}
