//! Attention of a few rows' query heads over a cache of IEEE halves.
//!
//! Keys lie by 16 positions, `[position / 16][head_dim]` of 16 lanes, so scores need no sums across lanes; values lie
//! `[position][head_dim / 16]`. The context is cut into segments of [`SEGMENT`] positions, each giving a partial softmax;
//! they are joined in order (Milakov and Gimelshein, arXiv:1805.02867). Rows that run together share the conversion of
//! what they read. Invariant: cuts depend on positions alone and every row adds up in the order it has alone, so neither
//! the number of rows nor of threads changes a bit.

use crate::{
    isa::{Isa, Kernel},
    simd::{self, Aligned, LANES, Lanes},
};

/// Positions in a segment.
pub const SEGMENT: usize = 256;

/// Positions whose keys, or values, of one head lie together in a cache: whole segments.
pub const SLAB: usize = 4 * SEGMENT;

/// Largest head dimension.
pub const MAX_HEAD_DIM: usize = 512;

/// Query heads that share a pass over keys and values.
const HEADS: usize = 4;

/// Most rows that share one, and most queries (rows × heads) whose sums fit into registers.
const ROWS: usize = 4;
const QUERIES: usize = 12;

/// How many bytes ahead of their use keys are prefetched, and the bytes of one prefetch.
const AHEAD: usize = 4096;
const LINE: usize = 64;

/// Numbers that a head's partial takes beside its `head_dim` sums: the maximum and the total weight.
pub const PARTIAL_EXTRA: usize = LANES;

/// A part of one KV head's cache that begins at a segment border.
#[derive(Clone, Copy, Debug)]
pub struct Stretch<'a> {
    /// `[positions / 16][head_dim][16]`, f16 bits.
    pub keys: &'a [[u16; LANES]],
    /// `[positions][head_dim / 16][16]`, f16 bits.
    pub values: &'a [[u16; LANES]],
    /// Position after the last that the last row sees, at least 1, maybe after the segment; one less for each row before.
    pub seen: usize,
    /// Head dimension, at most [`MAX_HEAD_DIM`].
    pub head_dim: usize,
    /// Most positions that a row sees, its own included, in all segments together; `usize::MAX` = all.
    pub window: usize,
    /// `c` of c·tanh(score / c), if scores are capped.
    pub cap: Option<f32>,
}

impl Stretch<'_> {
    /// Position after the last of the segment that a row sees, `after` being the number of rows that follow it.
    pub(crate) fn len(&self, after: usize) -> usize {
        self.seen.saturating_sub(after).min(SEGMENT)
    }

    /// The first position of the segment that a row sees; [`SEGMENT`] if its window begins after the segment.
    pub(crate) fn start(&self, after: usize) -> usize {
        self.seen.saturating_sub(after).saturating_sub(self.window).min(SEGMENT)
    }
}

/// The query heads that share a KV head, rotated and scaled; the call covers `rows` of the m rows, starting at `first`.
#[derive(Clone, Copy, Debug)]
pub struct Queries<'a> {
    /// `[heads][head_dim / 16][m]`.
    pub tiles: &'a [[f32; LANES]],
    /// Rows in `tiles`.
    pub m: usize,
    /// First row that attends.
    pub first: usize,
    /// Rows that attend.
    pub rows: usize,
}

/// Most rows that one call of [`attend`] takes for `heads` query heads.
pub fn rows_at_once(isa: Isa, heads: usize) -> usize {
    if isa.rows() < 2 * ROWS { 1 } else { (QUERIES / heads.clamp(1, HEADS)).min(ROWS) }
}

/// Partial softmax of each row and query head; `out` is `[rows][heads][head_dim + PARTIAL_EXTRA]`.
pub fn attend(isa: Isa, queries: Queries<'_>, stretch: Stretch<'_>, out: &mut [f32]) {
    let each = stretch.head_dim + PARTIAL_EXTRA;
    let of_row = out.len() / queries.rows;
    let tiles = queries.tiles.chunks(HEADS * stretch.head_dim / LANES * queries.m);
    for (start, tiles) in (0..of_row).step_by(HEADS * each).zip(tiles) {
        let heads = HEADS.min((of_row - start) / each);
        let (queries, out) = (Queries { tiles, ..queries }, Partials { start, of_row, each, heads, out: &mut *out });
        macro_rules! run {
            ($($count:literal)*) => { match heads * queries.rows {
                $($count => isa.run(Attend::<$count> { queries, stretch, out }),)*
                count => unreachable!("{count} queries at once"),
            } };
        }
        run!(1 2 3 4 6 8 9 12);
    }
}

/// Where the partials of a group of heads lie; query `g` is head `g % heads` of row `g / heads`.
struct Partials<'a> {
    out: &'a mut [f32], // [rows][of_row]
    start: usize,
    of_row: usize,
    each: usize,
    heads: usize,
}

impl Partials<'_> {
    fn of(&mut self, g: usize) -> &mut [f32] {
        let at = g / self.heads * self.of_row + self.start + g % self.heads * self.each;
        &mut self.out[at..at + self.each]
    }
}

struct Attend<'a, const G: usize> {
    queries: Queries<'a>, // [heads][head_dim / 16][m]
    stretch: Stretch<'a>,
    out: Partials<'a>,
}

pub(crate) type Scores = [[f32; LANES]; SEGMENT / LANES];

impl<const G: usize> Kernel for Attend<'_, G> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(mut self, s: S) {
        let (stretch, rows, heads) = (self.stretch, self.queries.rows, self.out.heads);
        let after = |g: usize| rows - 1 - g / heads;
        let seen: [[usize; 2]; G] = std::array::from_fn(|g| [stretch.start(after(g)), stretch.len(after(g))]);
        (0..AHEAD).step_by(LINE).for_each(|at| s.prefetch(stretch.keys, at));
        let mut scores = Aligned([[[0.0; LANES]; SEGMENT / LANES]; G]);
        let scores = &mut scores.0;
        let mut gathered = [[0.0; MAX_HEAD_DIM]; G];
        gather(self.queries, stretch.head_dim, heads, &mut gathered);
        score(s, &gathered, (stretch, seen[0][0] / LANES), scores);
        for (g, scores) in scores.iter_mut().enumerate() {
            cap(s, scores, (stretch.cap, seen[0][0] / LANES));
            let [max, total] = weigh(s, scores, seen[g]);
            let out = self.out.of(g);
            out[stretch.head_dim] = max;
            out[stretch.head_dim + 1] = total;
        }
        mix(s, scores, &seen, stretch, &mut self.out);
    }
}

/// Gathers the rows' queries from their tiles, in place: returning them by value takes long.
#[inline(always)]
fn gather<const G: usize>(
    queries: Queries<'_>,
    head_dim: usize,
    heads: usize,
    gathered: &mut [[f32; MAX_HEAD_DIM]; G],
) {
    for (g, query) in gathered.iter_mut().enumerate() {
        let first = g % heads * (head_dim / LANES * queries.m) + queries.first + g / heads;
        let tiles = queries.tiles[first..].iter().step_by(queries.m);
        for (to, tile) in query.as_chunks_mut::<LANES>().0.iter_mut().take(head_dim / LANES).zip(tiles) {
            *to = *tile;
        }
    }
}

/// `scores[g][p] = q_g · k_p` from block `first` on, as two partial sums over even and odd dimensions.
#[inline(always)]
fn score<S: Lanes, const G: usize>(
    s: S,
    queries: &[[f32; MAX_HEAD_DIM]; G],
    (stretch, first): (Stretch<'_>, usize),
    scores: &mut [Scores; G],
) {
    let blocks = stretch.len(0).div_ceil(LANES);
    let keys = stretch.keys[first * stretch.head_dim..].chunks_exact(stretch.head_dim);
    for (b, keys) in (first..blocks).zip(keys) {
        let mut sums = [[s.splat(0.0); 2]; G];
        for (d, keys) in keys.as_chunks::<2>().0.iter().enumerate() {
            s.prefetch(keys, AHEAD);
            s.prefetch(stretch.values, (b * stretch.head_dim + 2 * d) * size_of::<[u16; LANES]>()); // for `mix`
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
}

/// Caps the scores from block `first` on, if there is a cap.
#[inline(always)]
pub(crate) fn cap<S: Lanes>(s: S, scores: &mut Scores, (cap, first): (Option<f32>, usize)) {
    if let Some(cap) = cap {
        for block in &mut scores[first..] {
            let capped = simd::capped(s, s.load(block), cap);
            s.store(capped, block);
        }
    }
}

/// Replaces scores by `e^(score − max)`, those before the first position that is seen by 0; returns max and total.
#[inline(always)]
fn weigh<S: Lanes>(s: S, scores: &mut Scores, seen: [usize; 2]) -> [f32; 2] {
    let max = largest(s, scores, seen);
    let total = exponents(s, scores, seen, max);
    [max, simd::sum(s, total)]
}

/// The largest score of the positions from `start` to `len`; those of the same sixteens beside them become −∞.
#[inline(always)]
pub(crate) fn largest<S: Lanes>(s: S, scores: &mut Scores, [start, len]: [usize; 2]) -> f32 {
    let (first, blocks, rest) = (start / LANES, len.div_ceil(LANES), len % LANES);
    if start % LANES > 0 {
        scores[first][..start % LANES].fill(f32::NEG_INFINITY);
    }
    if rest > 0 {
        scores[blocks - 1][rest..].fill(f32::NEG_INFINITY);
    }
    let mut largest = s.splat(f32::NEG_INFINITY);
    for block in &scores[first..blocks] {
        largest = s.max(largest, s.load(block));
    }
    simd::max(s, largest)
}

/// Replaces the scores from `start` to `len` by `e^(score − max)`, those before by 0; returns their sums, lane by lane.
#[inline(always)]
pub(crate) fn exponents<S: Lanes>(s: S, scores: &mut Scores, [start, len]: [usize; 2], max: f32) -> S::F {
    let (mut first, blocks, rest) = (start / LANES, len.div_ceil(LANES), len % LANES);
    let shift = s.splat(max);
    // a block is added once what nobody sees is out of it
    let (mut total, mut last) = (s.splat(0.0), s.splat(0.0));
    scores[..first].fill([0.0; LANES]);
    if start % LANES > 0 {
        let block = &mut scores[first];
        s.store(simd::exp_below(s, s.sub(s.load(block), shift)), block);
        block[..start % LANES].fill(0.0);
        last = s.load(block);
        first += 1;
    }
    for block in &mut scores[first..blocks] {
        total = s.add(total, last);
        last = simd::exp_below(s, s.sub(s.load(block), shift));
        s.store(last, block);
    }
    if rest > 0 {
        scores[blocks - 1][rest..].fill(0.0);
        last = s.load(&scores[blocks - 1]);
    }
    s.add(total, last)
}

/// `out[g] = Σ_p weight[g][p] · v_p`, for as many groups of 16 dimensions at a time as fit into registers.
#[inline(always)]
fn mix<S: Lanes, const G: usize>(
    s: S,
    weights: &[Scores; G],
    seen: &[[usize; 2]; G],
    stretch: Stretch<'_>,
    out: &mut Partials<'_>,
) {
    let tiles = stretch.head_dim / LANES;
    let mut tile = 0;
    while tile < tiles {
        if G <= 4 && tiles - tile >= 4 {
            Mix { weights, seen, stretch, tile }.run::<S, 4>(s, out);
            tile += 4;
        } else if tiles - tile >= 2 {
            Mix { weights, seen, stretch, tile }.run::<S, 2>(s, out);
            tile += 2;
        } else {
            Mix { weights, seen, stretch, tile }.run::<S, 1>(s, out);
            tile += 1;
        }
    }
}

struct Mix<'a, const G: usize> {
    weights: &'a [Scores; G],
    /// First position and number of positions that each query sees, in ascending order.
    seen: &'a [[usize; 2]; G],
    stretch: Stretch<'a>,
    tile: usize,
}

impl<const G: usize> Mix<'_, G> {
    #[inline(always)]
    fn run<S: Lanes, const T: usize>(self, s: S, out: &mut Partials<'_>) {
        let tiles = self.stretch.head_dim / LANES;
        let [start, shared] = self.seen[0];
        let rows = self.stretch.values[start * tiles..].chunks_exact(tiles);
        let mut sums = [[s.splat(0.0); T]; G];
        for (p, row) in (start..shared).zip(rows.clone()) {
            let row: &[[u16; LANES]; T] = row[self.tile..].first_chunk().expect("tiles of the head");
            let mut values = [s.splat(0.0); T];
            for t in 0..T {
                values[t] = s.load_f16(&row[t]);
            }
            for g in 0..G {
                let weight = s.splat(self.weights[g].as_flattened()[p]);
                for t in 0..T {
                    sums[g][t] = s.fma(weight, values[t], sums[g][t]);
                }
            }
        }
        for (g, sums) in sums.iter().enumerate() {
            let tiles = out.of(g)[self.tile * LANES..].as_chunks_mut().0;
            for (to, sum) in tiles.iter_mut().zip(sums) {
                s.store(*sum, to);
            }
        }
        // Positions that only later rows see must not enter the sums of the others: 0 · ∞ is NaN.
        for (p, row) in (start..self.stretch.len(0)).zip(rows).skip(shared - start) {
            for g in (0..G).filter(|&g| p < self.seen[g][1]) {
                let weight = s.splat(self.weights[g].as_flattened()[p]);
                let tiles = out.of(g)[self.tile * LANES..].as_chunks_mut().0;
                for (to, value) in tiles.iter_mut().zip(&row[self.tile..self.tile + T]) {
                    s.store(s.fma(weight, s.load_f16(value), s.load(to)), to);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;
    use crate::{Acts, BLOCK, Join, Operand, attend_prompt, testing::Noise};

    /// [`attend`] or [`attend_prompt`].
    type Attention = fn(Isa, Queries<'_>, Stretch<'_>, &mut [f32]);

    struct Case {
        head_dim: usize,
        heads: usize,
        keys: Vec<[u16; LANES]>,
        values: Vec<[u16; LANES]>,
        window: usize,
        cap: Option<f32>,
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
            Self { head_dim, heads, keys, values, window: usize::MAX, cap: None }
        }

        /// Outputs `[heads][head_dim]` of row `row` of `m`, which sees `len` positions and runs with
        /// the rows `first..first + rows`, all of the same query.
        fn run(&self, (isa, attend): (Isa, Attention), query: &[f32], place: RowSpan, len: usize) -> Vec<f32> {
            let RowSpan { m, first, rows, row } = place;
            let tiles: Vec<_> = query.as_chunks().0.iter().flat_map(|tile| vec![*tile; m]).collect();
            let partial = self.heads * (self.head_dim + PARTIAL_EXTRA);
            let before = len.saturating_sub(self.window) / SEGMENT;
            let segments = len.div_ceil(SEGMENT) - before;
            let mut partials = vec![0.0; segments * partial];
            let mut together = vec![f32::NAN; rows * partial];
            for (segment, out) in (before..).zip(partials.chunks_exact_mut(partial)) {
                let from = segment * SEGMENT * self.head_dim / LANES;
                let stretch = Stretch {
                    keys: &self.keys[from..],
                    values: &self.values[from..],
                    seen: len + (first + rows - 1 - row) - segment * SEGMENT,
                    head_dim: self.head_dim,
                    window: self.window,
                    cap: self.cap,
                };
                attend(isa, Queries { tiles: &tiles, m, first, rows }, stretch, &mut together);
                out.copy_from_slice(&together[(row - first) * partial..][..partial]);
            }
            let mut out = Acts::default();
            let each = self.head_dim.next_multiple_of(BLOCK);
            out.shape(1, self.heads * each, Operand { blocks: false, values: true });
            let mut columns: Vec<_> = out.columns().collect();
            for (head, out) in columns.chunks_exact_mut(each / BLOCK).enumerate() {
                let partials = &partials[head * (self.head_dim + PARTIAL_EXTRA)..];
                let (stride, head_dim) = (partial, self.head_dim);
                isa.run(Join { partials, stride, segments, head_dim, out, row: 0, factors: None });
            }
            drop(columns);
            let heads = out.values().as_flattened().chunks_exact(each);
            heads.flat_map(|head| &head[..self.head_dim]).copied().collect()
        }

        /// The same in `f64`, by the definition.
        fn reference(&self, query: &[f32], len: usize) -> Vec<f64> {
            let d = self.head_dim;
            let number = |bits: u16| f16::from_bits(bits).to_f64();
            let key = |p: usize, i: usize| number(self.keys[p / LANES * d + i][p % LANES]);
            let value = |p: usize, i: usize| number(self.values.as_flattened()[p * d + i]);
            let head = |query: &[f32]| {
                let score = |p| (0..d).map(|i| f64::from(query[i]) * key(p, i)).sum::<f64>();
                let capped =
                    |score: f64| self.cap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh());
                let first = len.saturating_sub(self.window);
                let scores: Vec<f64> = (first..len).map(score).map(capped).collect();
                let max = scores.iter().copied().fold(f64::MIN, f64::max);
                let weights: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
                let total: f64 = weights.iter().sum();
                let mix = |i| (first..len).map(|p| weights[p - first] * value(p, i)).sum::<f64>() / total;
                (0..d).map(mix).collect::<Vec<_>>()
            };
            query.chunks_exact(d).flat_map(head).collect()
        }
    }

    #[derive(Clone, Copy, Debug)]
    struct RowSpan {
        m: usize,
        first: usize,
        rows: usize,
        row: usize,
    }

    impl RowSpan {
        const ALONE: Self = Self { m: 1, first: 0, rows: 1, row: 0 };

        /// Every row of passes of several sizes, together with as many others as run in one pass.
        fn all(most: usize) -> impl Iterator<Item = Self> {
            [(1, 0), (5, 2), (16, 12)].into_iter().flat_map(move |(m, first)| {
                let together = (1..=most.min(m - first)).map(move |rows| (m, first, rows));
                together.flat_map(|(m, first, rows)| (first..first + rows).map(move |row| Self { m, first, rows, row }))
            })
        }
    }

    #[test]
    fn outputs_are_right_and_the_same_bits_however_they_are_asked_for() {
        let lens = [1, 2, 15, 16, 17, 100, 255, 256, 257, 511, 512, 513, 1000, 2049, 4000];
        for (head_dim, heads) in [(64, 3), (32, 1), (96, 2), (128, 5), (256, 4), (512, 1), (16, 2), (80, 3)] {
            let mut case = Case::new(head_dim, heads, 4008);
            case.values[4000 * head_dim / LANES].fill(f16::INFINITY.to_bits()); // seen by later rows only
            let query = Noise(9).numbers(heads * head_dim);
            for len in lens {
                let alone = case.run((Isa::PORTABLE, attend), &query, RowSpan::ALONE, len);
                for isa in Isa::available() {
                    for place in RowSpan::all(rows_at_once(isa, heads)) {
                        let got = case.run((isa, attend), &query, place, len);
                        assert!(got == alone, "{}, {head_dim} × {heads}, {len} positions, {place:?}", isa.name());
                    }
                }
                for (got, expected) in alone.iter().zip(case.reference(&query, len)) {
                    assert!((f64::from(*got) - expected).abs() < 1e-4, "{got} for {expected}, {len} positions");
                }
            }
        }
    }

    #[test]
    fn windows_and_caps_are_those_of_the_definition_whatever_rows_run_together() {
        for (head_dim, heads) in [(64, 3), (256, 4), (512, 1)] {
            for (window, cap) in
                [(1, None), (3, Some(2.0)), (16, None), (250, Some(0.5)), (256, None), (700, Some(20.0))]
            {
                let case = Case { window, cap, ..Case::new(head_dim, heads, 2 * SLAB) };
                let query = Noise(9).numbers(heads * head_dim);
                for len in [1, 17, 257, 300, 1030] {
                    let what = format!("{head_dim} × {heads}, {len} positions, window {window}, cap {cap:?}");
                    let alone = case.run((Isa::PORTABLE, attend), &query, RowSpan::ALONE, len);
                    for (got, expected) in alone.iter().zip(case.reference(&query, len)) {
                        assert!((f64::from(*got) - expected).abs() < 1e-4, "{got} for {expected}, {what}");
                    }
                    for isa in Isa::available() {
                        for place in RowSpan::all(rows_at_once(isa, heads)).filter(|place| place.row < len) {
                            let got = case.run((isa, attend), &query, place, len);
                            assert!(got == alone, "{}, {what}, {place:?}", isa.name());
                        }
                        for (m, first, rows) in [(17, 0, 17), (40, 3, 31)] {
                            for row in [first, first + rows / 2, first + rows - 1] {
                                let place = RowSpan { m, first, rows, row };
                                let got = case.run((isa, attend_prompt), &query, place, len);
                                assert!(got == alone, "{}, {what}, {place:?}", isa.name());
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_row_of_a_prompt_has_the_bits_of_a_row_alone() {
        for (head_dim, heads) in [(64, 3), (32, 1), (96, 2), (128, 5), (256, 4), (512, 1), (16, 2), (80, 3)] {
            let mut case = Case::new(head_dim, heads, 4 * SLAB);
            case.values[4000 * head_dim / LANES].fill(f16::INFINITY.to_bits()); // seen by later rows only
            let query = Noise(9).numbers(heads * head_dim);
            for len in [1, 17, 256, 257, 1000, 4000] {
                let alone = case.run((Isa::PORTABLE, attend), &query, RowSpan::ALONE, len);
                for isa in Isa::available() {
                    for (m, first, rows) in [(17, 0, 17), (40, 3, 31), (64, 0, 64)] {
                        for row in [first, first + rows / 2, first + rows - 1] {
                            let place = RowSpan { m, first, rows, row };
                            let got = case.run((isa, attend_prompt), &query, place, len);
                            assert!(got == alone, "{}, {head_dim} × {heads}, {len} positions, {place:?}", isa.name());
                        }
                    }
                }
            }
        }
    }
}
