//! Attention of one row over keys and values in f32 that follow each other position by position, as caches of models
//! hold them whose other parts run on candle.
//!
//! Invariant: a row's sums go over positions in order, so its bits depend on what it sees alone.

use crate::{
    Isa,
    isa::Kernel,
    simd::{self, LANES, Lanes, part, put},
};

/// Query heads that share the reading of keys and values.
pub const PLAIN_HEADS: usize = 4;

/// Positions whose values stay in the first-level cache while all their columns are summed.
const CHUNK: usize = 16;

/// Rows of one head, each `stride` numbers after the one before.
#[derive(Clone, Copy, Debug)]
pub struct PlainRows<'a> {
    /// The numbers from the first row on.
    pub numbers: &'a [f32],
    /// From row to row.
    pub stride: usize,
    /// Numbers of a row.
    pub width: usize,
}

impl<'a> PlainRows<'a> {
    #[inline(always)]
    fn row(self, at: usize) -> &'a [f32] {
        &self.numbers[at * self.stride..][..self.width]
    }
}

/// Up to [`PLAIN_HEADS`] query heads of a row that share a key head: `softmax(cap(q · kᵀ · scale)) · v`.
#[derive(Debug)]
pub struct PlainAttention<'a> {
    /// Queries, `[heads][width of a key]`.
    pub queries: &'a [f32],
    /// Keys of the positions that the row sees.
    pub keys: PlainRows<'a>,
    /// Values of as many.
    pub values: PlainRows<'a>,
    /// Positions that the row sees.
    pub seen: usize,
    /// Factor of the products.
    pub scale: f32,
    /// `c` of `c · tanh(score / c)`, if scores are capped.
    pub softcap: Option<f32>,
    /// `[heads][width of a value]`.
    pub out: &'a mut [f32],
}

impl PlainAttention<'_> {
    /// Runs it with the instructions of `isa`.
    ///
    /// # Panics
    /// With more heads than [`PLAIN_HEADS`], or none.
    pub fn run_on(&mut self, isa: Isa) {
        match self.queries.len() / self.keys.width {
            1 => isa.run(Attend::<1>(self)),
            2 => isa.run(Attend::<2>(self)),
            3 => isa.run(Attend::<3>(self)),
            4 => isa.run(Attend::<4>(self)),
            heads => panic!("{heads} heads at once"),
        }
    }
}

struct Attend<'a, 'b, const H: usize>(&'a mut PlainAttention<'b>);

impl<const H: usize> Kernel for Attend<'_, '_, H> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let work = self.0;
        let mut scores: [Vec<f32>; H] = std::array::from_fn(|_| vec![0.0; work.seen.next_multiple_of(LANES)]);
        score::<S, H>(s, work, &mut scores);
        let mut totals = [0.0; H];
        for (scores, total) in scores.iter_mut().zip(&mut totals) {
            *total = weigh(s, scores, work.seen, work.softcap);
        }
        let width = work.values.width;
        work.out.fill(0.0);
        for first in (0..work.seen).step_by(CHUNK) {
            let positions = first..work.seen.min(first + CHUNK);
            for start in (0..width).step_by(LANES) {
                add_values::<S, H>(s, work, &scores, (positions.clone(), start));
            }
        }
        for (out, total) in work.out.chunks_exact_mut(width).zip(totals) {
            let factor = s.splat(1.0 / total);
            for out in out.chunks_mut(LANES) {
                put(s, s.mul(part(s, out), factor), out);
            }
        }
    }
}

/// Products of queries and keys.
#[inline(always)]
fn score<S: Lanes, const H: usize>(s: S, work: &PlainAttention<'_>, scores: &mut [Vec<f32>; H]) {
    let width = work.keys.width;
    let whole = width / LANES * LANES;
    for position in 0..work.seen {
        let key = work.keys.row(position);
        let mut sums = [s.splat(0.0); H];
        for start in (0..whole).step_by(LANES) {
            let key = part(s, &key[start..]);
            for h in 0..H {
                sums[h] = s.fma(part(s, &work.queries[h * width + start..]), key, sums[h]);
            }
        }
        if whole < width {
            let key = part(s, &key[whole..]);
            for h in 0..H {
                sums[h] = s.fma(part(s, &work.queries[h * width + whole..(h + 1) * width]), key, sums[h]);
            }
        }
        for h in 0..H {
            scores[h][position] = simd::sum(s, sums[h]) * work.scale;
        }
    }
}

/// Turns scores into weights, not yet divided by their sum, which is returned.
#[inline(always)]
fn weigh<S: Lanes>(s: S, scores: &mut [f32], seen: usize, softcap: Option<f32>) -> f32 {
    if let Some(cap) = softcap {
        for scores in scores.chunks_exact_mut(LANES) {
            put(s, simd::capped(s, part(s, scores), cap), scores);
        }
    }
    scores[seen..].fill(f32::NEG_INFINITY);
    let mut largest = s.splat(f32::NEG_INFINITY);
    for scores in scores.chunks_exact(LANES) {
        largest = s.max(largest, part(s, scores));
    }
    let largest = s.splat(simd::max(s, largest));
    for scores in scores.chunks_exact_mut(LANES) {
        put(s, simd::exp(s, s.sub(part(s, scores), largest)), scores);
    }
    scores[seen..].fill(0.0);
    let mut total = s.splat(0.0);
    for scores in scores.chunks_exact(LANES) {
        total = s.add(total, part(s, scores));
    }
    simd::sum(s, total)
}

/// Adds the weighted values of some positions, in up to 16 columns from `start` on.
#[inline(always)]
fn add_values<S: Lanes, const H: usize>(
    s: S,
    work: &mut PlainAttention<'_>,
    weights: &[Vec<f32>; H],
    (positions, start): (std::ops::Range<usize>, usize),
) {
    let width = work.values.width;
    let end = width.min(start + LANES);
    let mut sums = [s.splat(0.0); H];
    for h in 0..H {
        sums[h] = part(s, &work.out[h * width + start..h * width + end]);
    }
    for position in positions {
        let value = part(s, &work.values.row(position)[start..end]);
        for h in 0..H {
            sums[h] = s.fma(s.splat(weights[h][position]), value, sums[h]);
        }
    }
    for h in 0..H {
        put(s, sums[h], &mut work.out[h * width + start..h * width + end]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Noise;

    fn expected(work: &PlainAttention<'_>) -> Vec<f64> {
        let (keys, values) = (work.keys, work.values);
        let mut out = Vec::new();
        for query in work.queries.chunks_exact(keys.width) {
            let product = |p| query.iter().zip(keys.row(p)).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum::<f64>();
            let scores = (0..work.seen).map(|p| product(p) * f64::from(work.scale));
            let scores: Vec<f64> = match work.softcap.map(f64::from) {
                Some(cap) => scores.map(|score| cap * (score / cap).tanh()).collect(),
                None => scores.collect(),
            };
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = scores.iter().map(|score| (score - max).exp()).sum();
            out.extend((0..values.width).map(|column| {
                let of = |(p, score): (usize, &f64)| (score - max).exp() / total * f64::from(values.row(p)[column]);
                scores.iter().enumerate().map(of).sum::<f64>()
            }));
        }
        out
    }

    #[test]
    fn answers_have_the_values_of_the_formula_and_the_same_bits_everywhere() {
        let mut noise = Noise(5);
        for (heads, [key, value], seen, softcap) in [
            (1, [16, 16], 1, None),
            (4, [64, 64], 37, None),
            (3, [256, 128], 300, Some(2.0)),
            (2, [5, 21], 16, Some(0.5)),
            (4, [128, 128], 1000, None),
        ] {
            let queries: Vec<f32> = noise.numbers(heads * key).iter().map(|x| 4.0 * x).collect();
            let (keys, values) = (noise.numbers(seen * (key + 3)), noise.numbers(seen * value));
            let mut first: Option<Vec<f32>> = None;
            for isa in Isa::available() {
                let mut out = vec![f32::NAN; heads * value];
                let mut work = PlainAttention {
                    queries: &queries,
                    keys: PlainRows { numbers: &keys, stride: key + 3, width: key },
                    values: PlainRows { numbers: &values, stride: value, width: value },
                    seen,
                    scale: 0.25,
                    softcap,
                    out: &mut out,
                };
                work.run_on(isa);
                for (own, expected) in work.out.iter().zip(expected(&work)) {
                    assert!((f64::from(*own) - expected).abs() < 1e-5, "{heads} {key} {seen}: {own}, {expected}");
                }
                assert!(*first.get_or_insert_with(|| out.clone()) == out, "{}", isa.name());
            }
        }
    }
}
