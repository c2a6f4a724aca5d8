//! The answer of a query head from its partial softmaxes, one for each segment of the context.
//!
//! Invariant: they are joined in order, so that neither the number of rows nor of threads changes a bit.

use crate::{
    activations::Column,
    attention::MAX_HEAD_DIM,
    form::BLOCK,
    isa::Kernel,
    simd::{self, LANES, Lanes},
};

/// Joins the partials of one row and head in order, and writes the result into columns of `out`.
pub struct Join<'a, 'b> {
    /// Partials `[segments]`, `stride` numbers apart.
    pub partials: &'a [f32],
    /// Distance between two segments' partials, in numbers.
    pub stride: usize,
    /// Segments to join.
    pub segments: usize,
    /// Head dimension, at most [`MAX_HEAD_DIM`].
    pub head_dim: usize,
    /// Columns of the head, 32 numbers each; the second half of the last one becomes 0 if the head fills no whole columns.
    pub out: &'a mut [Column<'b>],
    /// Row of `out` to write.
    pub row: usize,
    /// Factors of the results: tiles `[head_dim / 16]`, so many tiles apart.
    pub factors: Option<(&'a [[f32; LANES]], usize)>,
}

impl Kernel for Join<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        if self.segments == 1 {
            return self.alone(s);
        }
        let segment = |i: usize| &self.partials[i * self.stride..i * self.stride + self.head_dim + 2];
        let (mut max, mut total) = (segment(0)[self.head_dim], segment(0)[self.head_dim + 1]);
        for i in 1..self.segments {
            let (other, more) = (segment(i)[self.head_dim], segment(i)[self.head_dim + 1]);
            if max > other {
                total += more * weight(s, other - max);
            } else {
                total = total.mul_add(weight(s, max - other), more);
                max = other;
            }
        }
        let mut sums = [[s.splat(0.0); 2]; MAX_HEAD_DIM / BLOCK];
        for i in 0..self.segments {
            let segment = segment(i);
            let weight = s.splat(weight(s, segment[self.head_dim] - max));
            let tiles = segment[..self.head_dim].as_chunks::<LANES>().0;
            for (c, x) in tiles.as_chunks::<2>().0.iter().enumerate() {
                for half in 0..2 {
                    sums[c][half] = s.fma(weight, s.load(&x[half]), sums[c][half]);
                }
            }
            if let ([x], c) = (tiles.as_chunks::<2>().1, tiles.len() / 2) {
                sums[c][0] = s.fma(weight, s.load(x), sums[c][0]);
            }
        }
        let total = s.splat(total);
        for (at, (column, sums)) in self.out.iter_mut().zip(sums).enumerate() {
            let results = [s.div(sums[0], total), s.div(sums[1], total)];
            column.put(s, self.row, scaled(s, self.factors, at, results));
        }
    }
}

/// The results of a column, times their factors.
#[inline(always)]
fn scaled<S: Lanes>(
    s: S,
    factors: Option<(&[[f32; LANES]], usize)>,
    column: usize,
    [low, high]: [S::F; 2],
) -> [S::F; 2] {
    match factors {
        None => [low, high],
        Some((tiles, step)) => {
            let at = 2 * column * step;
            // a head may end within a column
            let high = tiles.get(at + step).map_or(high, |factor| s.mul(high, s.load(factor)));
            [s.mul(low, s.load(&tiles[at])), high]
        }
    }
}

impl Join<'_, '_> {
    /// For a single segment, whose weight is e⁰: the same bits with less work.
    #[inline(always)]
    fn alone<S: Lanes>(self, s: S) {
        let total = s.splat(self.partials[self.head_dim + 1]);
        let (pairs, rest) = self.partials[..self.head_dim].as_chunks::<LANES>().0.as_chunks::<2>();
        let mut columns = self.out.iter_mut().enumerate();
        for (x, (at, column)) in pairs.iter().zip(&mut columns) {
            let [low, high] = [s.add(s.load(&x[0]), s.splat(0.0)), s.add(s.load(&x[1]), s.splat(0.0))];
            let results = [s.div(low, total), s.div(high, total)];
            column.put(s, self.row, scaled(s, self.factors, at, results));
        }
        if let ([x], Some((at, column))) = (rest, columns.next()) {
            let results = [s.div(s.add(s.load(x), s.splat(0.0)), total), s.splat(0.0)];
            column.put(s, self.row, scaled(s, self.factors, at, results));
        }
    }
}

#[inline(always)]
fn weight<S: Lanes>(s: S, below: f32) -> f32 {
    simd::to_array(s, simd::exp(s, s.splat(below)))[0]
}
