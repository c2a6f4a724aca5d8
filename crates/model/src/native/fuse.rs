//! Adds inner states of the target to the state that a module's slots read, on the native kernels.
//!
//! Invariant: a row's bits do not depend on the rows beside it.

use super::{
    layer::NormWeight,
    matrix::Matrix,
    normer::{Normer, load},
    pass::Pass,
};
use crate::native::transpose::transpose;
use crate::nn::{Fuse, StatesNorm};
use draftscope_kernels::{Acts, LANES, Onto};

impl Fuse<Matrix, NormWeight> {
    /// `[m][(1 + blocks) d / 16] -> [d / 16][m]`; returns whether all were finite.
    pub(crate) fn forward(
        &self,
        pass: Pass<'_>,
        hidden: &[[f32; LANES]],
        acts: &mut Acts,
        out: &mut [[f32; LANES]],
    ) -> bool {
        let (tiles, width) = (out.len() / pass.m, hidden.len() / pass.m);
        let rows = hidden.chunks_exact(width).map(|row| row.split_at(tiles));
        let (own, within): (Vec<_>, Vec<_>) = rows.unzip();
        transpose(&own.concat(), pass.m, out);
        let mut states = Vec::new();
        let mut normer = Normer { pass, acts, turned: Vec::new() };
        let finite = normer.states((&within.concat(), &mut states), &self.units, StatesNorm::Each);
        load(pass.cpu, &states, (pass.m, &self.matrix), acts);
        pass.product(&self.matrix, acts, Onto::Present, out);
        finite
    }
}
