//! Convolutions around the steps of a block drafter's layers: DFlash 2.
//!
//! Invariant: an output depends on its row and the rows of its block before it, and on nothing else of the pass.

use super::block_attention::attention;
use super::cache::LayerCache;
use super::feed::{Feed, Gated};
use super::head;
use super::layer::{Layer, Scratch};
use super::load::Loader;
use super::matrix::Matrix;
use super::parts::unsupported;
use super::pass::Pass;
use super::transpose::{transpose, untranspose};
use crate::ModelError;
use crate::plan::{self, Sight};
use draftscope_kernels::{Acts, LANES, Norm, Onto, Operand};

/// A convolution before and after a step, as [`plan::Convolution`] has it.
#[derive(Debug)]
pub(super) struct Convolution {
    base: Vec<f32>, // [side][tap][d]
    project: Matrix,
    taps: usize,
    group: usize,
}

/// Which of the two.
#[derive(Clone, Copy, Debug)]
enum Side {
    Before,
    After,
}

/// Dynamic weights of the rows of a block, `[m][side][tap][d / group]`.
struct Weights(Vec<f32>);

impl Convolution {
    /// Reads it.
    ///
    /// # Errors
    /// When a tensor is missing, misshapen or damaged.
    pub(super) fn load(loader: &Loader<'_>, of: &plan::Convolution) -> Result<Self, ModelError> {
        let shape = [2, of.taps, of.project.columns];
        let base = loader.tensors.0.stored(&of.base, &shape)?.to_f32(&shape)?;
        Ok(Self { base, project: loader.matrix(&of.project)?, taps: of.taps, group: of.group })
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(self.base.as_slice()) + self.project.bytes()
    }

    /// Dynamic weights of rows `[m][d / 16]`.
    fn weights(&self, pass: Pass<'_>, rows: &[[f32; LANES]], acts: &mut Acts) -> Weights {
        head::operand(pass.cpu, &self.project, rows, acts);
        let (m, tiles) = (pass.m, self.project.tiles());
        let mut outputs = vec![[0.0; LANES]; tiles * m];
        pass.product(&self.project, acts, Onto::Nothing, &mut outputs);
        let mut rows = vec![[0.0; LANES]; tiles * m];
        untranspose(&outputs, m, &mut rows);
        // rows after the matrix's last fill its last tile
        let of_row = |row: &[[f32; LANES]]| row.as_flattened()[..self.project.rows()].to_vec();
        Weights(rows.chunks_exact(tiles).flat_map(of_row).collect())
    }

    /// The convolution of rows `[m][d / 16]`.
    fn apply(&self, side: Side, Weights(dynamic): &Weights, rows: &[[f32; LANES]]) -> Vec<[f32; LANES]> {
        let (d, taps) = (self.project.k(), self.taps);
        let groups = d / self.group;
        let (flat, side) = (rows.as_flattened(), side as usize);
        let mut out = vec![[0.0; LANES]; rows.len()];
        for (i, out) in out.as_flattened_mut().chunks_exact_mut(d).enumerate() {
            for tap in 0..taps.min(i + 1) {
                let part = side * taps + tap;
                let base = self.base[part * d..][..d].chunks_exact(self.group);
                let dynamic = &dynamic[(i * 2 * taps + part) * groups..][..groups];
                let from = flat[(i - tap) * d..][..d].chunks_exact(self.group);
                for ((out, base), (x, delta)) in out.chunks_exact_mut(self.group).zip(base).zip(from.zip(dynamic)) {
                    let numbers = base.iter().zip(x);
                    out.iter_mut().zip(numbers).for_each(|(out, (base, x))| *out += (base + delta) * x);
                }
            }
        }
        out
    }
}

/// The gated layer of a layer.
///
/// # Errors
/// [`ModelError::Unsupported`] when it has experts.
pub(super) fn gated(layer: &Layer) -> Result<&Gated, ModelError> {
    match &layer.feed {
        Feed::Dense(gated) => Ok(gated),
        Feed::Experts(_) => Err(unsupported("a block drafter with experts")),
    }
}

/// Normed rows `[m][d / 16]` of the stream.
fn normed(pass: Pass<'_>, weight: &[[f32; LANES]], scratch: &mut Scratch) -> Vec<[f32; LANES]> {
    let mut rows = vec![[0.0; LANES]; scratch.x.len()];
    scratch.acts.shape(pass.m, 0, Operand::default());
    let Scratch { x, acts, .. } = scratch;
    Norm { x, weight, eps: pass.shape.eps, out: acts, kept: &mut rows }.run_on(pass.cpu.isa);
    rows
}

/// Adds the convolution of a step's outputs `matrix · acts` to the stream.
fn add(
    pass: Pass<'_>,
    (matrix, acts): (&Matrix, &Acts),
    (around, weights): (&Convolution, &Weights),
    x: &mut [[f32; LANES]],
) {
    let mut tiles = vec![[0.0; LANES]; x.len()];
    pass.product(matrix, acts, Onto::Nothing, &mut tiles);
    let mut rows = vec![[0.0; LANES]; x.len()];
    untranspose(&tiles, pass.m, &mut rows);
    transpose(&around.apply(Side::After, weights, &rows), pass.m, &mut tiles);
    x.as_flattened_mut().iter_mut().zip(tiles.as_flattened()).for_each(|(x, given)| *x += given);
}

/// Runs the rows in `scratch.x` through a layer in place, with convolutions around its attention and its gated layer.
///
/// # Errors
/// When the layer has other steps than these.
pub(super) fn forward(
    (layer, [of_attention, of_feed]): (&Layer, &[Convolution; 2]),
    pass: Pass<'_>,
    (cache, sight): (LayerCache<'_>, Sight),
    scratch: &mut Scratch,
) -> Result<(), ModelError> {
    let (attention, gated, d) = (attention(layer)?, gated(layer)?, pass.shape.d_model);
    let rows = normed(pass, &layer.attn_norm, scratch);
    let weights = of_attention.weights(pass, &rows, &mut scratch.acts);
    let rows = of_attention.apply(Side::Before, &weights, &rows);
    head::load(pass.cpu, attention.qkv.operand(), (&rows, d), &mut scratch.acts);
    attention.forward_block(pass, (cache, &layer.out), sight, scratch);
    add(pass, (&layer.out, &scratch.attended), (of_attention, &weights), &mut scratch.x);

    let rows = normed(pass, &layer.ffn_norm, scratch);
    let weights = of_feed.weights(pass, &rows, &mut scratch.acts);
    let rows = of_feed.apply(Side::Before, &weights, &rows);
    head::load(pass.cpu, gated.gate_up.operand(), (&rows, d), &mut scratch.acts);
    let Scratch { x, acts, feed, .. } = scratch;
    gated.inner(pass, acts, feed);
    add(pass, (&gated.down, &feed.inner), (of_feed, &weights), x);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::matrix::Cpu;
    use crate::native::testing::Noise;
    use draftscope_kernels::{Isa, Pool};

    /// `out[i, c] = Σ_t (base[t, c] + δ[i, t, c / group]) · x[i − t, c]`, term by term.
    fn by_formula(of: &Convolution, side: usize, Weights(dynamic): &Weights, x: &[f32], d: usize) -> Vec<f32> {
        let groups = d / of.group;
        let term = |i: usize, c: usize, t: usize| {
            let part = side * of.taps + t;
            let weight = of.base[part * d + c] + dynamic[(i * 2 * of.taps + part) * groups + c / of.group];
            i.checked_sub(t).map_or(0.0, |before| weight * x[before * d + c])
        };
        (0..x.len()).map(|at| (0..of.taps).map(|t| term(at / d, at % d, t)).sum()).collect()
    }

    #[test]
    fn an_output_is_the_sum_that_the_formula_says_and_rows_before_the_block_are_zero() {
        let (d, m) = (64, 5);
        let cpu = Cpu::new(Pool::new(2), Isa::PORTABLE);
        for (taps, group) in [(2, 16), (1, 64), (4, 8), (3, 1)] {
            let mut noise = Noise(taps as u64);
            let project = noise.numbers(2 * taps * (d / group) * d);
            let of = Convolution {
                base: noise.numbers(2 * taps * d),
                project: Matrix::of_numbers(&cpu, d, &project),
                taps,
                group,
            };
            let dynamic = Weights(noise.numbers(m * 2 * taps * (d / group)));
            let x = noise.numbers(m * d);
            for (side, number) in [(Side::Before, 0), (Side::After, 1)] {
                let out = of.apply(side, &dynamic, x.as_chunks().0);
                let want = by_formula(&of, number, &dynamic, &x, d);
                let near = out.as_flattened().iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-5);
                assert!(near, "{taps} taps, groups of {group}, side {number}");
            }
        }
    }
}
