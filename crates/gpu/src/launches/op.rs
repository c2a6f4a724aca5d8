//! A launch of a sequence: a kernel with its buffers, and how many workgroups it takes for the rows of a pass.

use crate::device::{Gpu, Work};
use crate::kernels::{Kernel, MAX_ROWS, PassRows, ROWS_AT_ONCE, TILE};

/// A bound kernel and its number of workgroups.
#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) kernel: Kernel,
    pub(crate) group: wgpu::BindGroup,
    pub(crate) grid: Grid,
    /// Outputs and inputs of a product.
    pub(crate) size: Option<[usize; 2]>,
}

/// How many workgroups run, for `m` rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Grid {
    /// So many, whatever the rows.
    Once(u32),
    /// One a row.
    Rows,
    /// So many a row.
    PerRow(u32),
    /// So many a row and segment, of few rows.
    PerSegment(u32),
    /// One a head and row, of few rows.
    Heads(u32),
    /// One a head and [`PROMPT_ROWS_AT_ONCE`] rows of a prompt.
    PromptHeads(u32),
    /// Products: along x and y for every group of rows that share the weights; for every tile of rows.
    Weights([u32; 2], u32),
    /// Products of few rows alone.
    FewRows([u32; 2]),
    /// Products of a prompt's rows alone.
    Tiles(u32),
}

/// Rows of a prompt whose attention shares a reading of the keys.
const PROMPT_ROWS_AT_ONCE: usize = 8;

impl Op {
    /// The same, as a product of so many outputs and inputs.
    pub(crate) fn sized(self, outputs: usize, inputs: usize) -> Self {
        Self { size: Some([outputs, inputs]), ..self }
    }

    /// Workgroups for a pass; `None` if passes of so many rows do without it.
    pub(crate) fn workgroups(&self, rows: &PassRows) -> Option<[u32; 3]> {
        let (m, is_prompt) = (rows.m(), rows.m() > MAX_ROWS);
        let rows_at_once = |each: usize| m.div_ceil(each) as u32;
        Some(match self.grid {
            Grid::Once(all) => [all, 1, 1],
            Grid::Rows => [m as u32, 1, 1],
            Grid::PerRow(each) => [each, m as u32, 1],
            Grid::PerSegment(_) | Grid::Heads(_) | Grid::FewRows(_) if is_prompt => return None,
            Grid::PromptHeads(_) | Grid::Tiles(_) if !is_prompt => return None,
            Grid::PerSegment(each) => [each, m as u32, rows.segments() as u32],
            Grid::Heads(heads) => [heads, m as u32, 1],
            Grid::PromptHeads(heads) => [heads, rows_at_once(PROMPT_ROWS_AT_ONCE), 1],
            Grid::Tiles(tiles) => [tiles, 1, rows_at_once(TILE)],
            Grid::Weights(_, tiles) if is_prompt => [tiles, 1, rows_at_once(TILE)],
            Grid::FewRows([x, y]) | Grid::Weights([x, y], _) => [x, y, rows_at_once(ROWS_AT_ONCE)],
        })
    }

    /// Records it; returns how many launches that is: none where these rows do not need it.
    pub(crate) fn launch(&self, gpu: &Gpu, pass: &mut wgpu::ComputePass<'_>, (rows, slot): (&PassRows, usize)) -> u64 {
        let Some(grid) = self.workgroups(rows) else { return 0 };
        gpu.dispatch(pass, self.kernel.for_rows(rows.m()), (&self.group, slot), grid);
        1
    }
}

/// Records launches for the pass in a slot, outside of the recording of a submission.
pub(crate) fn launch<'a>(
    gpu: &Gpu,
    encoder: &mut wgpu::CommandEncoder,
    ops: impl IntoIterator<Item = &'a Op>,
    (rows, slot): (&PassRows, usize),
) {
    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
    let mut dispatches = 0;
    for op in ops {
        dispatches += op.launch(gpu, &mut pass, (rows, slot));
    }
    gpu.count(Work { dispatches, ..Work::default() });
}
