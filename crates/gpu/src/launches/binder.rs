//! Launches that every pass is made of: a kernel, its dimensions and the buffers that it binds.

use draftscope_kernels::BLOCK;

use super::op::{Grid, Op};
use crate::device::Gpu;
use crate::kernels::{Dims, Kernel, OUTPUTS, TILE};
use crate::memory::Acts;
use crate::weights::{Matrix, Part};

/// Most workgroups along one axis that are used.
const MOST_ALONG_X: usize = 32_768;

/// Makes the launches of a sequence.
pub(crate) struct Binder<'a> {
    pub(crate) gpu: &'a Gpu,
    pub(crate) run: &'a wgpu::Buffer,
}

impl Binder<'_> {
    pub(crate) fn op(&self, kernel: Kernel, dims: Dims, grid: Grid, buffers: &[&wgpu::Buffer]) -> Op {
        let dims = self.gpu.dims(dims);
        Op { kernel, group: self.gpu.bind(kernel, (&dims, self.run), buffers), grid, size: None }
    }

    /// Rows of the embedding, scaled, to `x`.
    pub(crate) fn embed(&self, (table, scale): (&Matrix, f32), tokens: &wgpu::Buffer, x: &wgpu::Buffer) -> Vec<Op> {
        let op = |part: &Part| {
            let a = [part.first as u32, (table.k / BLOCK) as u32, part.rows as u32, 0];
            let dims = Dims { a, c: [scale, 0.0, 0.0, 0.0], ..Dims::default() };
            self.op(Kernel::Embed(part.form), dims, Grid::Rows, &[&part.codes, &part.scales, tokens, x])
        };
        table.parts.iter().map(op).collect()
    }

    pub(crate) fn norm(&self, (x, weight): (&wgpu::Buffer, &wgpu::Buffer), (d, eps): (usize, f32), out: &Acts) -> Op {
        let dims = Dims { a: [d as u32, 0, 0, 0], c: [eps, 0.0, 0.0, 0.0], ..Dims::default() };
        self.op(Kernel::Norm, dims, Grid::Rows, &[x, weight, &out.values, &out.codes, &out.scales])
    }

    /// `out[m][width]` from column `first` on `(+)= matrix · acts`. Two parts of codes in different forms are one launch for
    /// few rows; of a prompt each is one.
    pub(crate) fn product(
        &self,
        (matrix, acts): (&Matrix, &Acts),
        (out, width, first): (&wgpu::Buffer, usize, usize),
        onto: bool,
    ) -> Vec<Op> {
        let dims = |part: &Part, rows: usize, of_first: usize| {
            let groups = rows.div_ceil(4 * OUTPUTS);
            let x = groups.min(MOST_ALONG_X);
            let dims = Dims {
                a: [rows as u32, (matrix.k / BLOCK) as u32, width as u32, (first + part.first) as u32],
                b: [u32::from(onto), x as u32, of_first as u32, 0],
                ..Dims::default()
            };
            (dims, [x as u32, groups.div_ceil(x) as u32])
        };
        let inputs = [&acts.values, &acts.codes, &acts.scales, out];
        let pair = match &matrix.parts[..] {
            [a, b] if a.form != b.form && !a.form.is_dense() && !b.form.is_dense() => Some((a, b)),
            _ => None,
        };
        let op = |part: &Part| {
            let (dims, grid) = dims(part, part.rows, part.rows);
            let tiles = part.rows.div_ceil(TILE) as u32;
            let grid = if pair.is_some() { Grid::Tiles(tiles) } else { Grid::Weights(grid, tiles) };
            let buffers: Vec<_> = [&part.codes, &part.scales].into_iter().chain(inputs).collect();
            self.op(Kernel::Matrix(part.form), dims, grid, &buffers).sized(part.rows, matrix.k)
        };
        let both = |(a, b): (&Part, &Part)| {
            let (dims, grid) = dims(a, a.rows + b.rows, a.rows);
            let buffers: Vec<_> =
                [&a.codes, &a.scales].into_iter().chain(inputs).chain([&b.codes, &b.scales]).collect();
            self.op(Kernel::MatrixPair(a.form, b.form), dims, Grid::FewRows(grid), &buffers)
                .sized(a.rows + b.rows, matrix.k)
        };
        pair.map(both).into_iter().chain(matrix.parts.iter().map(op)).collect()
    }

    /// What greedy decoding asks of logits `[m][width]`.
    pub(crate) fn stats(&self, logits: &wgpu::Buffer, width: usize, out: &wgpu::Buffer) -> Op {
        let stretches = width.div_ceil(512);
        let dims = Dims { a: [width as u32, stretches as u32, 0, 0], ..Dims::default() };
        self.op(Kernel::Stats, dims, Grid::PerRow(stretches as u32), &[logits, out])
    }

    /// The best of the same logits, and those of the tokens of the pass.
    pub(crate) fn best(
        &self,
        (logits, stats): (&wgpu::Buffer, &wgpu::Buffer),
        width: usize,
        (tokens, out): (&wgpu::Buffer, &wgpu::Buffer),
    ) -> Op {
        let dims = Dims { a: [width as u32, width.div_ceil(512) as u32, 0, 0], ..Dims::default() };
        self.op(Kernel::Best, dims, Grid::Rows, &[logits, stats, tokens, out])
    }

    /// Reading of a buffer of so many bytes by so many workgroups.
    pub(crate) fn stream(&self, memory: &wgpu::Buffer, bytes: usize, (workgroups, sums): (u32, &wgpu::Buffer)) -> Op {
        let dims = Dims { a: [(bytes / 16) as u32, 256 * workgroups, 0, 0], ..Dims::default() };
        self.op(Kernel::Stream, dims, Grid::Once(workgroups), &[memory, sums])
    }

    /// Caps logits `[m][width]` in place.
    pub(crate) fn cap(&self, (logits, width): (&wgpu::Buffer, usize), cap: f32) -> Op {
        let dims = Dims { a: [width as u32, 0, 0, 0], c: [cap, 0.0, 0.0, 0.0], ..Dims::default() };
        self.op(Kernel::Cap, dims, Grid::PerRow(width.div_ceil(512) as u32), &[logits])
    }

    /// The token of the largest of row 0's logits, by their statistics, to where the pass says.
    pub(crate) fn pick(&self, stats: &wgpu::Buffer, ids: &wgpu::Buffer, tokens: &wgpu::Buffer) -> Op {
        self.op(Kernel::Pick, Dims::default(), Grid::Rows, &[stats, ids, tokens])
    }
}
