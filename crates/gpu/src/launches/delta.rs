//! Recurrent layers: Gated DeltaNet with its short convolution, the state on the device.
//!
//! A state follows one path and cannot be cut like a cache. The device keeps the state at one position, and of the rows
//! after it what they wrote into it; every pass runs these rows again and then its own. So a rollback costs nothing, and
//! its bits are those of rows that never ran. Invariant: rings keep all rows that may run again, and those before them
//! that the convolution sees.

use draftscope_kernels::BLOCK;

use super::binder::Binder;
use super::op::{Grid, Op};
use crate::kernels::{Dims, Kernel};
use crate::memory::{Acts, DeltaMemory, Scratch};
use crate::weights::{DeltaShape, DeltaWeights, Matrix};

/// Lanes of a column of a state, and columns of a workgroup; the shader has the same numbers.
const LANES: usize = 4;
const COLUMNS: usize = 16;

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
