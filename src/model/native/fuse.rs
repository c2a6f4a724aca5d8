//! What lies within the target, added to the state that a module's slots read, on the native kernels.
//!
//! `h + fuse · [s_1 / rms(s_1) ; s_2 / rms(s_2) ; …]`, the s being the residual stream behind some of the target's blocks
//! (after EAGLE-3, arXiv 2503.01840, section 3.1). Invariant: a row's bits do not depend on the rows beside it.

use super::kernel::{Acts, LANES, Onto};
use super::layer::{NormWeight, Pass};
use super::matrix::Matrix;
use super::normer::{Normer, load};
use crate::model::Tap;
use crate::model::native::normer::StatesNorm;
use crate::model::native::transpose::transpose;

/// The matrix and what it reads.
#[derive(Clone, Debug)]
pub(in crate::model) struct Fuse {
    blocks: Vec<usize>,
    matrix: Matrix, // [d, blocks · d]
    ones: Vec<NormWeight>,
}

impl Fuse {
    /// Reads the states behind so many blocks each.
    pub(in crate::model) fn new(blocks: &[usize], matrix: Matrix) -> Self {
        let tiles = matrix.k() / LANES / blocks.len().max(1);
        Self { blocks: blocks.to_vec(), matrix, ones: vec![vec![[1.0; LANES]; tiles]; blocks.len()] }
    }

    pub(in crate::model) fn bytes(&self) -> usize {
        self.matrix.bytes()
    }

    /// The tap of a module that else reads this one.
    pub(in crate::model) fn tap(&self, own: &Tap) -> Tap {
        own.and_behind(&self.blocks)
    }

    /// `[m][(1 + blocks) d / 16] -> [d / 16][m]`; gives back whether all was finite.
    pub(in crate::model) fn forward(
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
        let finite = normer.states((&within.concat(), &mut states), &self.ones, StatesNorm::Each);
        load(pass.cpu, &states, (pass.m, &self.matrix), acts);
        pass.product(&self.matrix, acts, Onto::Present, out);
        finite
    }
}
