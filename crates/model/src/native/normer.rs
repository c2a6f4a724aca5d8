//! Norms of the rows that modules read: of an embedding, of a state, of several of the target's states side by side.
//!
//! Invariant: a row's bits do not depend on the rows beside it.

use super::{
    layer::NormWeight,
    matrix::{Cpu, Matrix},
    pass::Pass,
};
use crate::native::transpose::transpose;
use crate::plan::StatesNorm;
use draftscope_kernels::{Acts, LANES, Load, Norm, Operand};

/// Rows `[m][k / 16]` as activations that a matrix reads.
pub(crate) fn load(cpu: &Cpu, rows: &[[f32; LANES]], (m, matrix): (usize, &Matrix), out: &mut Acts) {
    out.shape(m, matrix.k(), matrix.operand());
    Load { rows, out }.run_on(cpu.isa);
}

/// Norms rows to rows.
pub(crate) struct Normer<'a> {
    pub(crate) pass: Pass<'a>,
    pub(crate) acts: &'a mut Acts,
    pub(crate) turned: Vec<[f32; LANES]>,
}

impl Normer<'_> {
    /// `[d / 16][m] -> [m][d / 16]`; returns whether all were finite.
    pub(crate) fn tiles(&mut self, x: &[[f32; LANES]], weight: &NormWeight, kept: &mut [[f32; LANES]]) -> bool {
        self.acts.shape(self.pass.m, 0, Operand::default());
        Norm { x, weight, eps: self.pass.shape.eps, out: &mut *self.acts, kept }.run_on(self.pass.cpu.isa)
    }

    /// In place, `[m][width / 16]`.
    pub(crate) fn rows(&mut self, rows: &mut [[f32; LANES]], weight: &NormWeight) -> bool {
        let mut turned = std::mem::take(&mut self.turned);
        turned.resize(rows.len(), [0.0; LANES]);
        transpose(rows, self.pass.m, &mut turned);
        let finite = self.tiles(&turned, weight, rows);
        self.turned = turned;
        finite
    }

    /// The target's states, normed together, separately, or not at all.
    pub(crate) fn states(
        &mut self,
        (from, to): (&[[f32; LANES]], &mut Vec<[f32; LANES]>),
        norms: &[NormWeight],
        how: StatesNorm,
    ) -> bool {
        to.clear();
        to.extend_from_slice(from);
        match (how, norms) {
            (StatesNorm::None, _) | (_, []) => true,
            (StatesNorm::Together, [norm, ..]) => self.rows(to, norm),
            (StatesNorm::Each, norms) => {
                let (m, width) = (self.pass.m, norms[0].len());
                let mut part = vec![[0.0; LANES]; m * width];
                norms.iter().enumerate().fold(true, |finite, (state, norm)| {
                    let place = |row: usize| (row * norms.len() + state) * width;
                    (0..m).for_each(|row| part[row * width..][..width].copy_from_slice(&from[place(row)..][..width]));
                    let own = self.rows(&mut part, norm);
                    (0..m).for_each(|row| to[place(row)..][..width].copy_from_slice(&part[row * width..][..width]));
                    finite && own
                })
            }
        }
    }
}
