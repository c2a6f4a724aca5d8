//! Gated DeltaNet over at most [`PROMPT_ROWS`](draftscope_kernels::PROMPT_ROWS) rows: its four projections as one region of
//! work, the rows out of their tiles, then the value heads, each of which goes through all rows.
//!
//! Invariant: as everywhere, a row's bits depend neither on the rows beside it nor on threads.

use std::sync::Arc;

use super::{
    delta_state::{DeltaInput, DeltaWeights},
    layer::Scratch,
    matrix::Matrix,
    normer::load,
    pass::Pass,
    recurrent::Recurrence,
};
use draftscope_kernels::{Acts, DeltaHead, LANES, Onto, Operand};

/// Weights before the output projection; copies share them.
#[derive(Clone, Debug)]
pub(crate) struct Delta {
    /// Queries, keys and values `[channels, d]`; gates `[value width, d]`; α and β `[value heads, d]`.
    pub(super) projections: [Matrix; 4],
    pub(super) weights: Arc<DeltaWeights>,
}

/// What the projections give for a row.
#[derive(Default)]
struct Row {
    input: DeltaInput,
    gates: Vec<f32>,
}

impl Delta {
    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.projections.iter().map(Matrix::bytes).sum::<usize>() + self.weights.bytes() as usize
    }

    /// The forms in which it reads rows.
    pub(super) fn operand(&self) -> Operand {
        self.projections.iter().map(Matrix::operand).fold(Operand::default(), Operand::and)
    }

    /// Reads `scratch.acts`; leaves answers in `scratch.attended`, as `reader` reads them.
    pub(super) fn forward(&self, pass: Pass<'_>, (layer, reader): (Recurrence<'_>, &Matrix), scratch: &mut Scratch) {
        let Scratch { acts, heads, attended, .. } = scratch;
        self.project(pass, acts, heads);
        let (inputs, gates): (Vec<_>, Vec<_>) =
            self.rows(pass, heads).into_iter().map(|row| (row.input, row.gates)).unzip();
        let gates: Vec<&[f32]> = gates.iter().map(Vec::as_slice).collect();
        let run = |heads: &mut [DeltaHead<'_>]| pass.cpu.pool.each(heads, |_, head| head.run_on(pass.cpu.isa));
        pass.cpu.pool.soon(reader.first_panel());
        let answers = layer.run(&self.weights, (inputs, &gates), &run);
        load(pass.cpu, answers.as_chunks().0, (pass.m, reader), attended);
    }

    /// Outputs of all projections, `[tiles][m]`.
    fn project(&self, pass: Pass<'_>, acts: &Acts, out: &mut Vec<[f32; LANES]>) {
        let (m, tiles) = (pass.m, self.projections.iter().map(Matrix::tiles).sum::<usize>());
        let grain = pass.cpu.grain(tiles);
        out.resize(tiles * m, [0.0; LANES]);
        pass.cpu.pool.chunks(out, grain * m, |item, out| {
            for (tile, out) in out.chunks_exact_mut(m).enumerate() {
                let (matrix, tile) = self.tile(item * grain + tile);
                matrix.multiply(pass.cpu, tile, acts, Onto::Nothing, out);
            }
        });
    }

    /// A tile of all projections, in order.
    fn tile(&self, mut tile: usize) -> (&Matrix, usize) {
        let [.., last] = &self.projections;
        for matrix in &self.projections {
            if tile < matrix.tiles() {
                return (matrix, tile);
            }
            tile -= matrix.tiles();
        }
        (last, tile)
    }

    fn rows(&self, pass: Pass<'_>, tiles: &[[f32; LANES]]) -> Vec<Row> {
        let m = pass.m;
        let mut rows: Vec<_> = (0..m).map(|_| Row::default()).collect();
        pass.cpu.pool.each(&mut rows, |row, out| {
            let mut rest = tiles;
            let [mixed, gates, alpha, beta] = self.projections.each_ref().map(|matrix| {
                let (own, more) = rest.split_at(matrix.tiles() * m);
                rest = more;
                let mut numbers = Vec::with_capacity(matrix.tiles() * LANES);
                own[row..].iter().step_by(m).for_each(|tile| numbers.extend(tile));
                numbers.truncate(matrix.rows());
                numbers
            });
            *out = Row { input: DeltaInput { mixed, alpha, beta }, gates };
        });
        rows
    }
}
