//! Embeddings of a token for each block: half from a table, half computed from its embedding, gated in the block.

use draftscope_kernels::BLOCK;

use super::binder::Binder;
use super::op::{Grid, Op};
use crate::kernels::{Dims, Kernel};
use crate::memory::{Acts, Scratch};
use crate::weights::{LayerInput, LayerTable, Shape};

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

    /// Adds the output of the feed-forward layer, normed by `post`, and then a block's input, to the residual stream; scales
    /// the sum, and leaves it normed by the next weight.
    pub(crate) fn layer_input(
        &self,
        of: &LayerInput,
        scratch: &Scratch,
        (post, next): (&wgpu::Buffer, Option<&wgpu::Buffer>),
        (d, eps, scale): (usize, f32, f32),
    ) -> Op {
        let Scratch { x, acts: Acts { values, codes, scales }, inputs, inputs_width, output, .. } = scratch;
        let width = of.gate.rows();
        let dims = Dims {
            a: [d, d / BLOCK, width, *inputs_width].map(|n| n as u32),
            b: [(of.index * width) as u32, u32::from(next.is_some()), (width / BLOCK) as u32, 0],
            c: [eps, scale, 0.0, 0.0],
        };
        let norms: Vec<_> = [post, &of.norm].into_iter().chain(next).collect();
        let norms = self.one_after_the_other(&norms);
        // each is one part: `LayerInput::new`
        let [gate, project] = [&of.gate, &of.project].map(|matrix| &matrix.parts[0]);
        let buffers = [&gate.codes, &gate.scales, &project.codes, &project.scales, inputs, &norms, output, x];
        let buffers: Vec<_> = buffers.into_iter().chain([values, codes, scales]).collect();
        self.op(Kernel::LayerInput(gate.form), dims, Grid::Rows, &buffers)
    }

    /// A buffer with the contents of others.
    fn one_after_the_other(&self, buffers: &[&wgpu::Buffer]) -> wgpu::Buffer {
        let bytes: u64 = buffers.iter().map(|buffer| buffer.size()).sum();
        let (all, mut encoder, mut at) = (self.gpu.storage(bytes as usize), self.gpu.encoder(), 0);
        for buffer in buffers {
            encoder.copy_buffer_to_buffer(buffer, 0, &all, at, buffer.size());
            at += buffer.size();
        }
        self.gpu.submit(encoder);
        all
    }
}
