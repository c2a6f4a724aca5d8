//! Work between matrices, row by row: root-mean-square norm and gated SiLU.
//!
//! Rows come in tiles `[d / 16][m]` of 16 lanes, as matrices produce them, and leave as
//! [`Acts`](super::activations::Acts) columns. Invariant: every row goes through the same operations in the same order,
//! whatever `m` is.

use crate::{
    activations::{Acts, Column, PROMPT_ROWS},
    isa::Kernel,
    simd::{self, LANES, Lanes},
};

/// `x / sqrt(mean(x²) + eps) · weight`. Source: Zhang and Sennrich, arXiv:1910.07467.
///
/// Returns whether all rows are finite.
pub struct Norm<'a> {
    /// Rows `[d / 16][m]`.
    pub x: &'a [[f32; LANES]],
    /// `[d / 16]`.
    pub weight: &'a [[f32; LANES]],
    /// Added to the mean of squares.
    pub eps: f32,
    /// Where the activations go.
    pub out: &'a mut Acts,
    /// Where to store the rows as plain numbers too, `[m][d / 16]`; may be empty.
    pub kept: &'a mut [[f32; LANES]],
}

impl Kernel for Norm<'_> {
    type Output = bool;

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) -> bool {
        let tiles = self.weight.len();
        let m = self.x.len() / tiles;
        let mut inverses = [0.0; PROMPT_ROWS];
        for (row, inverse) in inverses.iter_mut().enumerate().take(m) {
            *inverse = inverse_size(s, &self.x[row..], m, self.eps);
        }
        let mut columns = self.out.columns();
        for pair in 0..tiles / 2 {
            let mut column = columns.next().unwrap_or_default();
            let weights = [s.load(&self.weight[2 * pair]), s.load(&self.weight[2 * pair + 1])];
            for row in 0..m {
                let inverse = s.splat(inverses[row]);
                let mut y = [s.splat(0.0); 2];
                for i in 0..2 {
                    let x = s.load(&self.x[(2 * pair + i) * m + row]);
                    y[i] = s.mul(s.mul(x, inverse), weights[i]);
                    if let Some(kept) = self.kept.get_mut(row * tiles + 2 * pair + i) {
                        s.store(y[i], kept);
                    }
                }
                column.put(s, row, y);
            }
        }
        inverses[..m].iter().all(|inverse| inverse.is_finite() && *inverse > 0.0)
    }
}

/// The part of a norm that 32 columns of all rows can do by themselves: it outputs `x · weight` as activations and
/// stores the sum of their squares. [`divisors`] does the rest once all columns are done. The thread that computed the
/// columns runs it, so no thread fetches what others wrote.
pub struct NormPart<'a, 'b> {
    /// Two tiles of the rows, `[2][m]`.
    pub x: &'a [[f32; LANES]],
    /// `[2]`.
    pub weight: &'a [[f32; LANES]],
    /// Where the 32 activations of each row go.
    pub out: &'a mut Column<'b>,
    /// Sums of squares, `[m]`.
    pub squares: &'a mut [f32],
}

impl Kernel for NormPart<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let (low, high) = self.x.split_at(self.x.len() / 2);
        let weights = [s.load(&self.weight[0]), s.load(&self.weight[1])];
        for (row, (low, high)) in low.iter().zip(high).enumerate() {
            let x = [s.load(low), s.load(high)];
            self.squares[row] = simd::sum(s, s.fma(x[1], x[1], s.mul(x[0], x[0])));
            self.out.put(s, row, [s.mul(x[0], weights[0]), s.mul(x[1], weights[1])]);
        }
    }
}

/// `x += y · divisor · weight` for 32 columns of all rows: what a norm by parts yields is added to the residual stream.
/// [`NormPart`] with an empty column gives the squares, [`divisors`] the divisors.
pub struct AddNormed<'a> {
    /// Two tiles of the rows that are added to, `[2][m]`.
    pub x: &'a mut [[f32; LANES]],
    /// As many of those that are normed.
    pub y: &'a [[f32; LANES]],
    /// `[2]`.
    pub weight: &'a [[f32; LANES]],
    /// One a row, `[m]`.
    pub divisors: &'a [f32],
}

impl Kernel for AddNormed<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let m = self.y.len() / 2;
        for (at, (x, y)) in self.x.iter_mut().zip(self.y).enumerate() {
            let normed = s.mul(s.load(y), s.splat(self.divisors[at % m]));
            s.store(s.fma(normed, s.load(&self.weight[at / m]), s.load(x)), x);
        }
    }
}

/// `1 / sqrt(mean(x²) + eps)` of each of `m` rows, from the sums of squares of its parts of 32 columns, `[parts][m]`;
/// also returns whether all are finite.
pub fn divisors(squares: &[f32], m: usize, eps: f32) -> ([f32; PROMPT_ROWS], bool) {
    let mut sums = [0.0; PROMPT_ROWS];
    for part in squares.chunks_exact(m) {
        sums.iter_mut().zip(part).for_each(|(sum, square)| *sum += square);
    }
    let columns = (squares.len() / m * 2 * LANES) as f32;
    sums[..m].iter_mut().for_each(|sum| *sum = 1.0 / (*sum / columns + eps).sqrt());
    (sums, sums[..m].iter().all(|inverse| inverse.is_finite() && *inverse > 0.0))
}

/// `1 / sqrt(mean(x²) + eps)` of the row whose tiles are `m` apart.
#[inline(always)]
fn inverse_size<S: Lanes>(s: S, x: &[[f32; LANES]], m: usize, eps: f32) -> f32 {
    let mut squares = s.splat(0.0);
    let mut tiles = 0;
    for tile in x.iter().step_by(m) {
        let x = s.load(tile);
        squares = s.fma(x, x, squares);
        tiles += 1;
    }
    1.0 / (simd::sum(s, squares) / (tiles * LANES) as f32 + eps).sqrt()
}

/// The same for the rows of one head, in place.
pub struct NormHead<'a> {
    /// `[head_dim / 16][m]`.
    pub tiles: &'a mut [[f32; LANES]],
    /// Rows.
    pub m: usize,
    /// `[head_dim / 16]`.
    pub weight: &'a [[f32; LANES]],
    /// Added to the mean of squares.
    pub eps: f32,
}

impl Kernel for NormHead<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        for row in 0..self.m {
            let inverse = s.splat(inverse_size(s, &self.tiles[row..], self.m, self.eps));
            for (tile, weight) in self.tiles[row..].iter_mut().step_by(self.m).zip(self.weight) {
                s.store(s.mul(s.mul(s.load(tile), inverse), s.load(weight)), tile);
            }
        }
    }
}

/// `x · divisor · weight` in place, for some tiles of all rows: a norm whose divisors are known.
pub struct ScaleRows<'a> {
    /// `[tiles][m]`.
    pub tiles: &'a mut [[f32; LANES]],
    /// `[tiles]`.
    pub weight: &'a [[f32; LANES]],
    /// One a row, `[m]`.
    pub divisors: &'a [f32],
}

impl Kernel for ScaleRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let m = self.divisors.len();
        for (at, x) in self.tiles.iter_mut().enumerate() {
            let normed = s.mul(s.load(x), s.splat(self.divisors[at % m]));
            s.store(s.mul(normed, s.load(&self.weight[at / m])), x);
        }
    }
}

/// `silu(gate) · up` for 32 columns of all rows.
/// Source: Shazeer, arXiv:2002.05202.
pub struct SiluMul<'a, 'b> {
    /// `[2][m]`.
    pub gate: &'a [[f32; LANES]],
    /// `[2][m]`.
    pub up: &'a [[f32; LANES]],
    /// Where the 32 activations of each row go.
    pub out: &'a mut Column<'b>,
}

impl Kernel for SiluMul<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let m = self.gate.len() / 2;
        for row in 0..m {
            let mut y = [s.splat(0.0); 2];
            for i in 0..2 {
                let gate = simd::silu(s, s.load(&self.gate[i * m + row]));
                y[i] = s.mul(gate, s.load(&self.up[i * m + row]));
            }
            self.out.put(s, row, y);
        }
    }
}

/// `gelu(gate) · up` for 32 columns of all rows.
pub struct GeluMul<'a, 'b> {
    /// `[2][m]`.
    pub gate: &'a [[f32; LANES]],
    /// `[2][m]`.
    pub up: &'a [[f32; LANES]],
    /// Where the 32 activations of each row go.
    pub out: &'a mut Column<'b>,
}

impl Kernel for GeluMul<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let m = self.gate.len() / 2;
        for row in 0..m {
            let mut y = [s.splat(0.0); 2];
            for i in 0..2 {
                let gate = simd::gelu(s, s.load(&self.gate[i * m + row]));
                y[i] = s.mul(gate, s.load(&self.up[i * m + row]));
            }
            self.out.put(s, row, y);
        }
    }
}

/// Copies rows of plain numbers into activations.
pub struct Load<'a> {
    /// `[m][d / 16]`.
    pub rows: &'a [[f32; LANES]],
    /// Where the activations go.
    pub out: &'a mut Acts,
}

impl Kernel for Load<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let m = self.out.m();
        let tiles = self.rows.len() / m;
        for (pair, mut column) in self.out.columns().enumerate() {
            for row in 0..m {
                let at = row * tiles + 2 * pair;
                column.put(s, row, [s.load(&self.rows[at]), s.load(&self.rows[at + 1])]);
            }
        }
    }
}

/// The largest logit and `Σ e^(logit − largest)`.
pub struct Survey<'a> {
    /// One row of any length.
    pub logits: &'a [f32],
}

impl Kernel for Survey<'_> {
    type Output = (f32, f32);

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) -> (f32, f32) {
        let (whole, rest) = self.logits.as_chunks::<LANES>();
        let mut last = [f32::NEG_INFINITY; LANES];
        last[..rest.len()].copy_from_slice(rest);
        let mut largest = s.load(&last);
        for logits in whole {
            largest = s.max(largest, s.load(logits));
        }
        let max = simd::max(s, largest);
        let shift = s.splat(max);
        let mut total = s.splat(0.0);
        for logits in whole {
            total = s.add(total, simd::exp(s, s.sub(s.load(logits), shift)));
        }
        let tail = simd::to_array(s, simd::exp(s, s.sub(s.load(&last), shift)));
        let tail: f32 = tail[..rest.len()].iter().sum();
        (max, simd::sum(s, total) + tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Isa, Operand, testing::Noise};

    const BOTH: Operand = Operand { blocks: true, values: true };

    fn acts(m: usize, k: usize) -> Acts {
        let mut acts = Acts::default();
        acts.shape(m, k, BOTH);
        acts
    }

    /// Norm of rows `[d / 16][m]`: activations, stored rows, whether all were finite.
    fn norm(isa: Isa, x: &[[f32; LANES]], weight: &[[f32; LANES]]) -> (Acts, Vec<[f32; LANES]>, bool) {
        let m = x.len() / weight.len();
        let (mut out, mut kept) = (acts(m, weight.len() * LANES), vec![[0.0; LANES]; x.len()]);
        let (eps, out_acts) = (1e-5, &mut out);
        let finite = isa.run(Norm { x, weight, eps, out: out_acts, kept: &mut kept });
        (out, kept, finite)
    }

    /// The same norm computed in parts: activations with factors, whether all were finite.
    fn norm_by_parts(isa: Isa, x: &[[f32; LANES]], weight: &[[f32; LANES]]) -> (Acts, bool) {
        let m = x.len() / weight.len();
        let mut out = acts(m, weight.len() * LANES);
        let mut squares = vec![0.0; weight.len() / 2 * m];
        let parts = x.chunks_exact(2 * m).zip(weight.chunks_exact(2)).zip(squares.chunks_exact_mut(m));
        for (mut column, ((x, weight), squares)) in out.columns().zip(parts) {
            isa.run(NormPart { x, weight, out: &mut column, squares });
        }
        let (factors, finite) = divisors(&squares, m, 1e-5);
        out.set_factors(factors);
        (out, finite)
    }

    #[test]
    fn a_norm_by_parts_is_the_norm_and_the_same_everywhere() {
        for (tiles, m) in [(2, 1), (36, 4), (8, 16), (128, 3)] {
            let (mut x, weight) = (Noise(1).lanes(tiles * m), Noise(2).lanes(tiles));
            let (whole, _, finite) = norm(Isa::PORTABLE, &x, &weight);
            let (parts, also) = norm_by_parts(Isa::PORTABLE, &x, &weight);
            assert!(finite && also && parts.factors().len() == m);
            for (at, (values, exact)) in parts.values().iter().zip(whole.values()).enumerate() {
                let factor = parts.factors()[at % m];
                let near = |(x, y): (&f32, &f32)| (x * factor - y).abs() <= 1e-6 * (1.0 + y.abs());
                assert!(values.iter().zip(exact).all(near), "{tiles} tiles, {m} rows, at {at}");
                let (block, same) = (parts.blocks()[at], whole.blocks()[at]);
                assert!((block.scale * factor - same.scale).abs() <= 1e-6 * same.scale);
            }
            for isa in Isa::available() {
                let (other, _) = norm_by_parts(isa, &x, &weight);
                assert!(other.blocks() == parts.blocks() && other.values() == parts.values(), "{}", isa.name());
                assert!(other.factors() == parts.factors(), "{}", isa.name());
            }
            // a row alone
            let row: Vec<_> = x[m - 1..].iter().step_by(m).copied().collect();
            let (alone, _) = norm_by_parts(Isa::detect(), &row, &weight);
            assert!(alone.factors() == &parts.factors()[m - 1..]);
            assert!(alone.blocks().iter().eq(parts.blocks()[m - 1..].iter().step_by(m)));
            x[0][3] = f32::NAN;
            assert!(!norm_by_parts(Isa::detect(), &x, &weight).1);
        }
    }

    #[test]
    fn a_norm_is_added_as_it_is_computed_alone() {
        for (tiles, m) in [(2, 1), (36, 4), (8, 16)] {
            let (before, y, weight) = (Noise(1).lanes(tiles * m), Noise(3).lanes(tiles * m), Noise(2).lanes(tiles));
            let run = |isa: Isa, y: &[[f32; LANES]], x: &[[f32; LANES]], m: usize| {
                let (mut x, mut squares) = (x.to_vec(), vec![0.0; tiles / 2 * m]);
                for ((y, weight), squares) in
                    y.chunks_exact(2 * m).zip(weight.chunks_exact(2)).zip(squares.chunks_exact_mut(m))
                {
                    isa.run(NormPart { x: y, weight, out: &mut Column::default(), squares });
                }
                let (divisors, finite) = divisors(&squares, m, 1e-5);
                assert!(finite);
                for ((x, y), weight) in x.chunks_exact_mut(2 * m).zip(y.chunks_exact(2 * m)).zip(weight.chunks_exact(2))
                {
                    isa.run(AddNormed { x, y, weight, divisors: &divisors[..m] });
                }
                x
            };
            let added = run(Isa::PORTABLE, &y, &before, m);
            assert!(Isa::available().all(|isa| run(isa, &y, &before, m) == added));
            let (_, normed, _) = norm(Isa::PORTABLE, &y, &weight);
            for row in 0..m {
                let of_row = |x: &[[f32; LANES]]| x[row..].iter().step_by(m).copied().collect::<Vec<_>>();
                assert!(run(Isa::detect(), &of_row(&y), &of_row(&before), 1) == of_row(&added), "row {row} of {m}");
                let (got, before) = (of_row(&added), of_row(&before));
                let expected = before.iter().zip(&normed[row * tiles..]);
                for (got, (x, normed)) in got.iter().zip(expected) {
                    assert!((0..LANES).all(|i| (got[i] - x[i] - normed[i]).abs() < 1e-5));
                }
            }
        }
    }

    #[test]
    fn norms_are_right_and_rows_do_not_touch_each_other() {
        for (tiles, m) in [(2, 1), (36, 4), (8, 16), (128, 3)] {
            let x = Noise(1).lanes(tiles * m);
            let weight = Noise(2).lanes(tiles);
            let (acts, kept, finite) = norm(Isa::PORTABLE, &x, &weight);
            assert!(finite);
            for isa in Isa::available() {
                let again = norm(isa, &x, &weight);
                assert!(again.0.blocks() == acts.blocks() && again.1 == kept, "{}", isa.name());
            }
            for row in 0..m {
                let alone: Vec<_> = x[row..].iter().step_by(m).copied().collect();
                let kept = &kept[row * tiles..(row + 1) * tiles];
                assert!(norm(Isa::detect(), &alone, &weight).1 == kept);
                let square: f64 = alone.as_flattened().iter().map(|&x| f64::from(x).powi(2)).sum();
                let size = (square / (tiles * LANES) as f64 + 1e-5).sqrt();
                let expected = alone.as_flattened().iter().zip(weight.as_flattened());
                for ((x, weight), got) in expected.zip(kept.as_flattened()) {
                    assert!((f64::from(*x) / size * f64::from(*weight) - f64::from(*got)).abs() < 1e-6);
                }
            }
        }
    }

    #[test]
    fn heads_are_normed_in_place_as_rows_are() {
        let (x, weight) = (Noise(8).lanes(4 * 5), Noise(9).lanes(4));
        for isa in Isa::available() {
            let mut tiles = x.clone();
            isa.run(NormHead { tiles: &mut tiles, m: 5, weight: &weight, eps: 1e-5 });
            let (_, kept, _) = norm(isa, &x, &weight);
            for row in 0..5 {
                let got: Vec<_> = tiles[row..].iter().step_by(5).copied().collect();
                assert!(got == kept[row * 4..(row + 1) * 4], "{}, row {row}", isa.name());
            }
        }
    }

    #[test]
    fn what_is_no_number_is_reported() {
        let weight = [[1.0; LANES]; 2];
        for bad in [f32::NAN, f32::INFINITY, f32::MAX] {
            let mut x = Noise(1).lanes(4);
            x[2][5] = bad;
            assert!(Isa::available().all(|isa| !norm(isa, &x, &weight).2), "{bad}");
        }
    }

    #[test]
    fn blocks_hold_the_nearest_of_255_steps() {
        for scale in [1.0, 1e-20, 1e20, 0.0] {
            let rows: Vec<[f32; LANES]> = Noise(4).lanes(2).iter().map(|x| x.map(|x| x * scale)).collect();
            let mut first = None;
            for isa in Isa::available() {
                let mut out = acts(1, 32);
                isa.run(Load { rows: &rows, out: &mut out });
                let block = out.blocks()[0];
                let codes: Vec<i8> =
                    block.words.iter().flat_map(|word| word.to_le_bytes().map(u8::cast_signed)).collect();
                for (code, x) in codes.iter().zip(rows.as_flattened()) {
                    assert!((f32::from(*code) * block.scale - x).abs() <= block.scale * 0.5001);
                }
                let total: i32 = codes.iter().map(|&code| i32::from(code)).sum();
                assert_eq!((block.total, block.total_down), (total as f32, -8 * total));
                assert_eq!(total, i32::from(block.halves[0]) + i32::from(block.halves[1]));
                assert_eq!(*first.get_or_insert(block), block, "{}", isa.name());
            }
        }
    }

    #[test]
    fn gates_and_surveys_are_right_on_every_instruction_set() {
        let wide = |seed| -> Vec<[f32; LANES]> { Noise(seed).lanes(6).iter().map(|x| x.map(|x| 30.0 * x)).collect() };
        let (gate, up) = (wide(1), wide(2));
        let logits: Vec<f32> = wide(3).as_flattened()[..91].to_vec();
        let run = |isa: Isa| {
            let mut out = acts(3, 32);
            let mut column = out.columns().next().unwrap();
            isa.run(SiluMul { gate: &gate, up: &up, out: &mut column });
            let silu = out.values().to_vec();
            let mut column = out.columns().next().unwrap();
            isa.run(GeluMul { gate: &gate, up: &up, out: &mut column });
            ([silu, out.values().to_vec()], isa.run(Survey { logits: &logits }))
        };
        let (values, (max, total)) = run(Isa::PORTABLE);
        assert!(Isa::available().all(|isa| run(isa) == (values.clone(), (max, total))));
        let silu = |g: f64| g / (1.0 + (-g).exp());
        let gelu =
            |g: f64| g * 0.5 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (g + 0.044_715 * g.powi(3))).tanh());
        for (row, lane) in (0..3).flat_map(|row| (0..2 * LANES).map(move |lane| (row, lane))) {
            let tile = lane / LANES * 3 + row;
            let (g, u) = (f64::from(gate[tile][lane % LANES]), f64::from(up[tile][lane % LANES]));
            for (values, exact) in values.iter().zip([silu(g), gelu(g)]) {
                let got = f64::from(values[row][lane]);
                assert!((exact * u - got).abs() <= 2e-6 * (g * u).abs() + 1e-12, "{g}, {u}: {got}");
            }
        }
        let exact: f64 = logits.iter().map(|&x| f64::from(x - max).exp()).sum();
        assert!((exact - f64::from(total)).abs() < 1e-5 && logits.contains(&max));
    }
}
