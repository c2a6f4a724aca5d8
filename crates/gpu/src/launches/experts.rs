//! Experts: the choice, the chosen ones, the layer beside them, and their sum. Each expert of each row is computed by itself,
//! so its bits do not depend on the rows beside it.

use draftscope_kernels::BLOCK;

use super::binder::Binder;
use super::op::{Grid, Op};
use crate::forms::Form;
use crate::kernels::{Dims, Kernel};
use crate::memory::{Acts, ExpertScratch, Scratch};
use crate::weights::{DenseWeights, ExpertWeights, Part};

impl Binder<'_> {
    /// From normed rows to the residual stream.
    pub(crate) fn experts(
        &self,
        (of, dense): (&ExpertWeights, Option<&DenseWeights>),
        (scratch, memory): (&Scratch, &ExpertScratch),
        (d, gelu): (usize, bool),
    ) -> Vec<Op> {
        let Scratch { x, acts, inner, output, .. } = scratch;
        let numbers = of.router.rows();
        let mut ops = self.product((&of.router, acts), (&memory.router, numbers, 0), false);
        ops.push(self.choose(of, memory));
        for (gate, up) in of.gate.parts.iter().zip(&of.up.parts) {
            ops.push(self.expert_gate_up((gate, up), of, (acts, memory), (d, gelu)));
        }
        ops.extend(of.down.parts.iter().map(|part| self.expert_down(part, of, memory, d)));
        if let Some(dense) = dense {
            ops.extend(self.gate_up((&dense.gate, &dense.up, gelu), acts, (inner, dense.gate.rows())));
            ops.extend(self.product((&dense.down, inner), (output, d, 0), false));
        }
        let a = [d as u32, of.used as u32, u32::from(dense.is_some()), 0];
        let seen = [&memory.outputs, &memory.shares, output, x];
        ops.push(self.op(Kernel::AddExperts, Dims { a, ..Dims::default() }, Grid::Rows, &seen));
        ops
    }

    fn choose(&self, of: &ExpertWeights, memory: &ExpertScratch) -> Op {
        let dims = Dims {
            a: [of.count as u32, of.used as u32, u32::from(of.rescaled), of.router.rows() as u32],
            b: [u32::from(of.has_gate()), 0, 0, 0],
            c: [of.factor, 0.0, 0.0, 0.0],
        };
        self.op(Kernel::Choose, dims, Grid::Rows, &[&memory.router, &memory.chosen, &memory.shares])
    }

    fn expert_gate_up(
        &self,
        (gate, up): (&Part, &Part),
        of: &ExpertWeights,
        (acts, memory): (&Acts, &ExpertScratch),
        (d, gelu): (usize, bool),
    ) -> Op {
        let a = [gate.rows, d / BLOCK, of.width, gate.first].map(|n| n as u32);
        let dims = Dims { a, b: [u32::from(gelu), of.used as u32, 0, 0], ..Dims::default() };
        let [read, scales] = self.read_by(gate.form, acts);
        let Acts { values, codes, scales: inner_scales } = &memory.inner;
        let weights = [&gate.codes, &gate.scales, &up.codes, &up.scales];
        let rest = [read, scales, &memory.chosen, values, codes, inner_scales];
        let buffers: Vec<_> = weights.into_iter().chain(rest).collect();
        let grid = Grid::Chosen((of.width / BLOCK) as u32, of.used as u32);
        self.op(Kernel::ExpertGateUp(gate.form), dims, grid, &buffers).sized(2 * of.used * of.width, d)
    }

    fn expert_down(&self, part: &Part, of: &ExpertWeights, memory: &ExpertScratch, d: usize) -> Op {
        let a = [part.rows, of.width / BLOCK, d, part.first].map(|n| n as u32);
        let [read, scales] = self.read_by(part.form, &memory.inner);
        let buffers = [&part.codes, &part.scales, read, scales, &memory.chosen, &memory.outputs];
        let grid = Grid::Chosen((d / 8) as u32, of.used as u32);
        let dims = Dims { a, ..Dims::default() };
        self.op(Kernel::ExpertDown(part.form), dims, grid, &buffers).sized(of.used * d, of.width)
    }

    /// What matrices of a form read of activations: numbers, and nothing; or codes, and their scales.
    fn read_by<'a>(&self, form: Form, acts: &'a Acts) -> [&'a wgpu::Buffer; 2] {
        if form.is_dense() { [&acts.values, &acts.scales] } else { [&acts.codes, &acts.scales] }
    }
}
