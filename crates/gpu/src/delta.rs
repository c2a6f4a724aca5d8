//! Recurrent layers: Gated DeltaNet with its short convolution, the state on the device.
//!
//! A state follows one path and cannot be cut like a cache. The device keeps the state at one position, and of the rows
//! after it what they wrote into it; every pass runs these rows again and then its own. So a rollback costs nothing, and
//! its bits are those of rows that never ran. Invariant: rings keep all rows that may run again, and those before them
//! that the convolution sees.

use draftscope_kernels::BLOCK;

use crate::block::{Binder, Grid, Op};
use crate::buffers::{Acts, Scratch};
use crate::device::Gpu;
use crate::kernel::Kernel;
use crate::layout::Dims;
use crate::matrix::Matrix;
use crate::pass::{MAX_ROWS, PROMPT_ROWS};

/// Rows that run alone one after the other until the state moves on: as many as a pass has.
pub(crate) const KEPT_ROWS: usize = MAX_ROWS;

/// Lanes of a column of a state, and columns of a workgroup; the shader has the same numbers.
const LANES: usize = 4;
const COLUMNS: usize = 16;

/// Widest key that the kernels run.
pub const MAX_KEY_DIM: usize = 256;

/// Sizes of a recurrent layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaShape {
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Heads of values; a multiple.
    pub value_heads: usize,
    /// Width of a query or key: a multiple of 4, at most [`MAX_KEY_DIM`].
    pub key_dim: usize,
    /// Width of a value: 16, or a multiple of 32.
    pub value_dim: usize,
    /// Rows that the convolution sees, its own included; at most 64.
    pub taps: usize,
    /// Whether value heads of one key head are adjacent; else head j reads key head j modulo their number.
    pub grouped: bool,
}

impl DeltaShape {
    /// Width of queries, keys and values together.
    #[must_use]
    pub const fn channels(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.value_width()
    }

    /// Width of all values.
    #[must_use]
    pub const fn value_width(&self) -> usize {
        self.value_heads * self.value_dim
    }

    /// Width of what is projected: queries, keys, values, gates, α and β.
    #[must_use]
    pub const fn projected(&self) -> usize {
        self.channels() + self.value_width() + 2 * self.value_heads
    }

    /// Why the kernels do not run it.
    #[must_use]
    pub fn lacks(&self) -> Option<String> {
        let key = self.key_dim.is_multiple_of(4) && (4..=MAX_KEY_DIM).contains(&self.key_dim);
        let value = self.value_dim == 16 || (self.value_dim > 0 && self.value_dim.is_multiple_of(32));
        let heads = self.value_width().is_multiple_of(32) && (1..=64).contains(&self.taps);
        (!(key && value && heads)).then(|| {
            format!(
                "recurrent layers with keys of {} and {} values of {} after {} taps",
                self.key_dim, self.value_heads, self.value_dim, self.taps
            )
        })
    }

    /// Positions of the rings: at most two passes of rows run again, then a pass, and the convolution sees rows before. A
    /// prompt's longer passes run none again.
    pub(crate) const fn ring(&self) -> usize {
        let rows = if PROMPT_ROWS > 3 * MAX_ROWS { PROMPT_ROWS } else { 3 * MAX_ROWS };
        (rows + self.taps - 1).next_multiple_of(MAX_ROWS)
    }

    /// Numbers of a layer's state.
    const fn state(&self) -> usize {
        self.value_width() * self.key_dim
    }

    /// Bytes of a layer's state, and of what is kept of one row.
    #[must_use]
    pub const fn bytes(&self) -> [u64; 2] {
        [4 * self.state() as u64, 4 * 2 * (self.channels() + self.value_heads) as u64]
    }
}

/// Weights of a recurrent layer besides those of a block, whose `qkv` yields queries, keys, values, gates, α and β, and
/// whose `out` reads the answers.
#[derive(Clone, Debug)]
pub struct DeltaWeights {
    /// Sizes.
    pub shape: DeltaShape,
    /// `[channels][taps]`
    pub taps: wgpu::Buffer,
    /// `−e^A_log` of each value head, then the bias of α of each.
    pub heads: wgpu::Buffer,
    /// `[value_dim]`
    pub norm: wgpu::Buffer,
}

/// A layer's state, and what it keeps of rows.
#[derive(Debug)]
pub(crate) struct DeltaMemory {
    pub(crate) raw: wgpu::Buffer,
    mixed: wgpu::Buffer,
    rates: wgpu::Buffer,
    pub(crate) state: wgpu::Buffer,
    /// The state [`KEPT_ROWS`] rows before, if they ran alone.
    pub(crate) older: wgpu::Buffer,
}

impl DeltaMemory {
    pub(crate) fn new(gpu: &Gpu, shape: &DeltaShape) -> Self {
        let row = |width: usize| gpu.storage(4 * shape.ring() * width);
        let state = || gpu.storage(4 * shape.state());
        Self {
            raw: row(shape.channels()),
            mixed: row(shape.channels()),
            rates: row(2 * shape.value_heads),
            state: state(),
            older: state(),
        }
    }

    /// All of it.
    pub(crate) fn buffers(&self) -> [&wgpu::Buffer; 5] {
        [&self.raw, &self.mixed, &self.rates, &self.state, &self.older]
    }
}

impl Binder<'_> {
    /// From normed rows to what the output projection reads.
    pub(crate) fn delta(
        &self,
        (weights, projections, eps): (&DeltaWeights, &Matrix, f32),
        (scratch, memory): (&Scratch, &DeltaMemory),
    ) -> Vec<Op> {
        let DeltaShape { key_heads, value_heads, key_dim, value_dim, taps, .. } = weights.shape;
        let (width, channels) = (weights.shape.projected(), weights.shape.channels());
        let Scratch { acts, attended: Acts { values, codes, scales }, qkv, q, .. } = scratch;
        let mut ops = self.product((projections, acts), (qkv, width, 0), false);
        let alpha = channels + weights.shape.value_width();
        let convolve = Dims {
            a: [key_heads, value_heads, key_dim, value_dim].map(|n| n as u32),
            b: [taps, width, alpha, weights.shape.ring()].map(|n| n as u32),
            ..Dims::default()
        };
        let DeltaMemory { raw, mixed, rates, .. } = memory;
        let heads = 2 * key_heads + value_heads + 1;
        let seen = [qkv, &weights.taps, &weights.heads, raw, mixed, rates];
        ops.push(self.op(Kernel::Convolve, convolve, Grid::PerRow(heads as u32), &seen));
        ops.push(self.delta_state(&weights.shape, memory, q));
        let together = (BLOCK / value_dim).max(1);
        let gate_norm = Dims {
            a: [value_heads, value_dim, width, channels].map(|n| n as u32),
            b: [together as u32, 0, 0, 0],
            c: [eps, 0.0, 0.0, 0.0],
        };
        let grid = Grid::PerRow((value_heads / together) as u32);
        ops.push(self.op(Kernel::GateNorm, gate_norm, grid, &[q, qkv, &weights.norm, values, codes, scales]));
        ops
    }

    /// Moves a state on by the rows of a pass, after those that run again.
    pub(crate) fn delta_state(&self, shape: &DeltaShape, memory: &DeltaMemory, answers: &wgpu::Buffer) -> Op {
        let DeltaShape { key_heads, value_heads, key_dim, value_dim, grouped, .. } = *shape;
        let dims = Dims {
            a: [key_heads, value_heads, key_dim, value_dim].map(|n| n as u32),
            b: [shape.ring() as u32, u32::from(grouped), 0, 0],
            ..Dims::default()
        };
        let DeltaMemory { mixed, rates, state, .. } = memory;
        let grid = Grid::Once((value_heads * value_dim / COLUMNS) as u32);
        self.op(Kernel::Delta((key_dim / LANES) as u32), dims, grid, &[mixed, rates, state, answers])
    }
}
