//! Attention of one row's query heads over a cache of IEEE halves.
//!
//! Keys lie by 16 positions, `[position / 16][head_dim]` of 16 lanes, so that scores need no sums
//! across lanes; values lie `[position][head_dim / 16]`. The context is cut into segments of
//! [`SEGMENT`] positions, each giving a partial softmax; partials are joined in order (online
//! softmax: Milakov and Gimelshein, arXiv:1805.02867). Invariant: cuts depend on positions alone,
//! so neither the number of rows nor of threads changes a bit.

use super::{
    acts::Column,
    isa::{Isa, Kernel},
    lanes::{self, LANES, Lanes},
};

/// Positions in a segment.
pub(crate) const SEGMENT: usize = 256;

/// Widest head.
pub(crate) const MAX_HEAD_DIM: usize = 256;

/// Query heads that share a pass over keys and values.
const HEADS: usize = 4;

/// Bytes between what is used and what is asked for.
const AHEAD: usize = 4096;

/// Numbers that a head's partial takes beside its `head_dim` sums: the maximum and the total weight.
pub(crate) const PARTIAL_EXTRA: usize = LANES;

/// A stretch of the cache of one KV head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch<'a> {
    pub(crate) keys: &'a [[u16; LANES]],   // [positions / 16][head_dim]
    pub(crate) values: &'a [[u16; LANES]], // [positions][head_dim / 16]
    /// Positions to look at, 1…[`SEGMENT`].
    pub(crate) len: usize,
    pub(crate) head_dim: usize,
}

/// The query heads that share a KV head, rotated and scaled, `[heads][head_dim / 16][m]`; one row
/// of them is meant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queries<'a> {
    pub(crate) tiles: &'a [[f32; LANES]],
    pub(crate) m: usize,
    pub(crate) row: usize,
}

/// Partial softmax of each query head; `out` is `[heads][head_dim + PARTIAL_EXTRA]`.
pub(crate) fn attend(isa: Isa, queries: Queries<'_>, stretch: Stretch<'_>, out: &mut [f32]) {
    let each = stretch.head_dim + PARTIAL_EXTRA;
    let heads = queries.tiles.chunks(HEADS * stretch.head_dim / LANES * queries.m);
    for (tiles, out) in heads.zip(out.chunks_mut(HEADS * each)) {
        let queries = Queries { tiles, ..queries };
        match out.len() / each {
            1 => isa.run(Attend::<1> { queries, stretch, out }),
            2 => isa.run(Attend::<2> { queries, stretch, out }),
            3 => isa.run(Attend::<3> { queries, stretch, out }),
            _ => isa.run(Attend::<4> { queries, stretch, out }),
        }
    }
}

struct Attend<'a, const G: usize> {
    queries: Queries<'a>, // [G][head_dim / 16][m]
    stretch: Stretch<'a>,
    out: &'a mut [f32], // [G][head_dim + PARTIAL_EXTRA]
}

type Scores = [[f32; LANES]; SEGMENT / LANES];

impl<const G: usize> Kernel for Attend<'_, G> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let stretch = self.stretch;
        let mut scores = [[[0.0; LANES]; SEGMENT / LANES]; G];
        score(s, &rows_of(self.queries, stretch.head_dim), stretch, &mut scores);
        let outs = self.out.chunks_exact_mut(stretch.head_dim + PARTIAL_EXTRA);
        for (scores, out) in scores.iter_mut().zip(outs) {
            let [max, total] = weigh(s, scores, stretch.len);
            out[stretch.head_dim] = max;
            out[stretch.head_dim + 1] = total;
        }
        mix(s, &scores, stretch, self.out);
    }
}

/// One row's queries, gathered from their tiles.
#[inline(always)]
fn rows_of<const G: usize>(queries: Queries<'_>, head_dim: usize) -> [[f32; MAX_HEAD_DIM]; G] {
    let mut rows = [[0.0; MAX_HEAD_DIM]; G];
    let heads = queries.tiles.chunks_exact(head_dim / LANES * queries.m);
    for (row, tiles) in rows.iter_mut().zip(heads) {
        let tiles = tiles[queries.row..].iter().step_by(queries.m);
        for (to, tile) in row.as_chunks_mut::<LANES>().0.iter_mut().zip(tiles) {
            *to = *tile;
        }
    }
    rows
}

/// `scores[g][p] = q_g · k_p`, in two partial sums of even and odd dimensions.
#[inline(always)]
fn score<S: Lanes, const G: usize>(
    s: S,
    queries: &[[f32; MAX_HEAD_DIM]; G],
    stretch: Stretch<'_>,
    scores: &mut [Scores; G],
) {
    let blocks = stretch.len.div_ceil(LANES);
    for (b, keys) in stretch.keys.chunks_exact(stretch.head_dim).take(blocks).enumerate() {
        let mut sums = [[s.splat(0.0); 2]; G];
        for (d, keys) in keys.as_chunks::<2>().0.iter().enumerate() {
            s.prefetch(keys, AHEAD);
            let keys = [s.load_f16(&keys[0]), s.load_f16(&keys[1])];
            for g in 0..G {
                let query = queries[g].as_chunks::<2>().0[d];
                sums[g][0] = s.fma(s.splat(query[0]), keys[0], sums[g][0]);
                sums[g][1] = s.fma(s.splat(query[1]), keys[1], sums[g][1]);
            }
        }
        for g in 0..G {
            s.store(s.add(sums[g][0], sums[g][1]), &mut scores[g][b]);
        }
    }
    let rest = stretch.len % LANES;
    if rest > 0 {
        for scores in scores {
            scores[blocks - 1][rest..].fill(f32::NEG_INFINITY);
        }
    }
}

/// Scores become `e^(score − max)`; gives back max and total.
#[inline(always)]
fn weigh<S: Lanes>(s: S, scores: &mut Scores, len: usize) -> [f32; 2] {
    let blocks = len.div_ceil(LANES);
    let mut largest = s.splat(f32::NEG_INFINITY);
    for block in &scores[..blocks] {
        largest = s.max(largest, s.load(block));
    }
    let max = lanes::max(s, largest);
    let shift = s.splat(max);
    for block in &mut scores[..blocks] {
        let weight = lanes::exp(s, s.sub(s.load(block), shift));
        s.store(weight, block);
    }
    let rest = len % LANES;
    if rest > 0 {
        scores[blocks - 1][rest..].fill(0.0);
    }
    let mut total = s.splat(0.0);
    for block in &scores[..blocks] {
        total = s.add(total, s.load(block));
    }
    [max, lanes::sum(s, total)]
}

/// `out[g] = Σ_p weight[g][p] · v_p`, four lanes' widths of the head at a time.
#[inline(always)]
fn mix<S: Lanes, const G: usize>(s: S, weights: &[Scores; G], stretch: Stretch<'_>, out: &mut [f32]) {
    let tiles = stretch.head_dim / LANES;
    let each = stretch.head_dim + PARTIAL_EXTRA;
    let mut tile = 0;
    while tile < tiles {
        if tiles - tile >= 4 {
            mix_tiles::<S, G, 4>(s, weights, stretch, tile, out, each);
            tile += 4;
        } else {
            mix_tiles::<S, G, 2>(s, weights, stretch, tile, out, each);
            tile += 2;
        }
    }
}

#[inline(always)]
fn mix_tiles<S: Lanes, const G: usize, const T: usize>(
    s: S,
    weights: &[Scores; G],
    stretch: Stretch<'_>,
    tile: usize,
    out: &mut [f32],
    each: usize,
) {
    let mut sums = [[s.splat(0.0); T]; G];
    let rows = stretch.values.chunks_exact(stretch.head_dim / LANES);
    for (p, row) in rows.take(stretch.len).enumerate() {
        let row: &[[u16; LANES]; T] = row[tile..].first_chunk().expect("tiles of the head");
        for t in 0..T {
            if t % 2 == 0 {
                s.prefetch(&row[t..], AHEAD);
            }
            let value = s.load_f16(&row[t]);
            for g in 0..G {
                let weight = s.splat(weights[g].as_flattened()[p]);
                sums[g][t] = s.fma(weight, value, sums[g][t]);
            }
        }
    }
    for g in 0..G {
        for t in 0..T {
            let at = g * each + (tile + t) * LANES;
            s.store(sums[g][t], out[at..].first_chunk_mut().expect("a tile of the head"));
        }
    }
}

/// Joins the partials of one row and head, in order, and puts the outcome into columns of `out`,
/// one for each 32 dimensions of the head.
pub(crate) struct Join<'a, 'b> {
    /// Partials `[segments]`, `stride` numbers apart.
    pub(crate) partials: &'a [f32],
    pub(crate) stride: usize,
    pub(crate) segments: usize,
    pub(crate) head_dim: usize,
    pub(crate) out: &'a mut [Column<'b>],
    pub(crate) row: usize,
}

impl Kernel for Join<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let segment = |i: usize| &self.partials[i * self.stride..i * self.stride + self.head_dim + 2];
        let (mut max, mut total) = (segment(0)[self.head_dim], segment(0)[self.head_dim + 1]);
        for i in 1..self.segments {
            let (other, more) = (segment(i)[self.head_dim], segment(i)[self.head_dim + 1]);
            let top = if max > other { max } else { other };
            total = total.mul_add(weight(s, max - top), more * weight(s, other - top));
            max = top;
        }
        for (c, column) in self.out.iter_mut().enumerate() {
            let mut sums = [s.splat(0.0); 2];
            for i in 0..self.segments {
                let segment = segment(i);
                let weight = s.splat(weight(s, segment[self.head_dim] - max));
                for (half, sum) in sums.iter_mut().enumerate() {
                    let x = segment[(2 * c + half) * LANES..].first_chunk().expect("a tile of the head");
                    *sum = s.fma(weight, s.load(x), *sum);
                }
            }
            let total = s.splat(total);
            column.put(s, self.row, [s.div(sums[0], total), s.div(sums[1], total)]);
        }
    }
}

#[inline(always)]
fn weight<S: Lanes>(s: S, below: f32) -> f32 {
    lanes::to_array(s, lanes::exp(s, s.splat(below)))[0]
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;
    use crate::model::native::{
        kernel::{Acts, Operand},
        testing::Noise,
    };

    struct Case {
        head_dim: usize,
        heads: usize,
        keys: Vec<[u16; LANES]>,
        values: Vec<[u16; LANES]>,
    }

    impl Case {
        fn new(head_dim: usize, heads: usize, positions: usize) -> Self {
            let mut noise = Noise(positions as u64);
            let lanes = positions.next_multiple_of(LANES) * head_dim / LANES;
            let mut halves = || {
                let lanes = noise.lanes(lanes);
                lanes.iter().map(|x| x.map(|x| f16::from_f32(4.0 * x).to_bits())).collect()
            };
            let (keys, values) = (halves(), halves());
            Self { head_dim, heads, keys, values }
        }

        /// Outputs `[heads][head_dim]` of `row` of `m` equal rows that see `len` positions.
        fn run(&self, isa: Isa, query: &[f32], (m, row): (usize, usize), len: usize) -> Vec<f32> {
            let tiles: Vec<_> = query.as_chunks().0.iter().flat_map(|tile| vec![*tile; m]).collect();
            let partial = self.heads * (self.head_dim + PARTIAL_EXTRA);
            let segments = len.div_ceil(SEGMENT);
            let mut partials = vec![0.0; segments * partial];
            for (segment, out) in partials.chunks_exact_mut(partial).enumerate() {
                let from = segment * SEGMENT * self.head_dim / LANES;
                let stretch = Stretch {
                    keys: &self.keys[from..],
                    values: &self.values[from..],
                    len: (len - segment * SEGMENT).min(SEGMENT),
                    head_dim: self.head_dim,
                };
                attend(isa, Queries { tiles: &tiles, m, row }, stretch, out);
            }
            let mut out = Acts::default();
            out.shape(1, self.heads * self.head_dim, Operand { blocks: false, values: true });
            let mut columns: Vec<_> = out.columns().collect();
            for (head, out) in columns.chunks_exact_mut(self.head_dim / 32).enumerate() {
                let partials = &partials[head * (self.head_dim + PARTIAL_EXTRA)..];
                let (stride, head_dim) = (partial, self.head_dim);
                isa.run(Join { partials, stride, segments, head_dim, out, row: 0 });
            }
            drop(columns);
            out.values().as_flattened().to_vec()
        }

        /// The same in `f64`, by the book.
        fn reference(&self, query: &[f32], len: usize) -> Vec<f64> {
            let d = self.head_dim;
            let number = |bits: u16| f16::from_bits(bits).to_f64();
            let key = |p: usize, i: usize| number(self.keys[p / LANES * d + i][p % LANES]);
            let value = |p: usize, i: usize| number(self.values.as_flattened()[p * d + i]);
            let head = |query: &[f32]| {
                let score = |p| (0..d).map(|i| f64::from(query[i]) * key(p, i)).sum::<f64>();
                let scores: Vec<f64> = (0..len).map(score).collect();
                let max = scores.iter().copied().fold(f64::MIN, f64::max);
                let weights: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
                let total: f64 = weights.iter().sum();
                let mix = |i| (0..len).map(|p| weights[p] * value(p, i)).sum::<f64>() / total;
                (0..d).map(mix).collect::<Vec<_>>()
            };
            query.chunks_exact(d).flat_map(head).collect()
        }
    }

    #[test]
    fn outputs_are_right_and_the_same_bits_however_they_are_asked_for() {
        let lens = [1, 2, 15, 16, 17, 100, 255, 256, 257, 511, 512, 513, 1000, 2049, 4000];
        for (head_dim, heads) in [(64, 3), (32, 1), (96, 2), (128, 5), (256, 4)] {
            let case = Case::new(head_dim, heads, 4000);
            let query = Noise(9).numbers(heads * head_dim);
            for len in lens {
                let alone = case.run(Isa::PORTABLE, &query, (1, 0), len);
                for isa in Isa::available() {
                    for place in [(1, 0), (16, 0), (16, 15), (5, 3)] {
                        let got = case.run(isa, &query, place, len);
                        assert!(got == alone, "{}, {head_dim} × {heads}, {len} positions, {place:?}", isa.name());
                    }
                }
                for (got, expected) in alone.iter().zip(case.reference(&query, len)) {
                    assert!((f64::from(*got) - expected).abs() < 1e-4, "{got} for {expected}, {len} positions");
                }
            }
        }
    }
}
