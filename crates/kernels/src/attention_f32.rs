//! Attention over keys and values in f32 that lie position by position: caches of models that otherwise run on candle.
//!
//! Positions are cut into chunks, each giving sums, the largest score and a total weight, which are joined in order; within
//! a chunk, segments are added one after the other (online softmax: Milakov and Gimelshein, arXiv:1805.02867). Sixteen keys
//! at a time are laid out with positions in lanes, so that scores need no sums across lanes; all queries of a job share
//! that, be they those of one row or of a prompt. Invariant: cuts depend on positions alone and a row adds up what it sees
//! in order, so its bits depend neither on the rows beside it nor on threads.

use std::{cell::RefCell, ops::Range};

use crate::attention_partial::{HEAD_EXTRA, clear, join, power};
use crate::isa::{Isa, Kernel};
use crate::simd::{self, Aligned, LANES, Lanes, part, put};

/// Positions whose keys, or values, are in a cache while all queries read them.
pub const HEAD_SEGMENT: usize = 64;

/// Positions of a chunk.
pub const HEAD_CHUNK: usize = 256;

/// Rows of one head, each `stride` numbers after the one before.
#[derive(Clone, Copy, Debug)]
pub struct HeadRows<'a> {
    /// The numbers from the first row on.
    pub numbers: &'a [f32],
    /// From row to row.
    pub stride: usize,
    /// Numbers of a row.
    pub width: usize,
}

impl<'a> HeadRows<'a> {
    #[inline(always)]
    fn row(self, at: usize) -> &'a [f32] {
        &self.numbers[at * self.stride..][..self.width]
    }
}

/// How products of queries and keys become scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreRule {
    /// Factor.
    pub scale: f32,
    /// `c` of `c · tanh(score / c)`, if scores are capped.
    pub softcap: Option<f32>,
}

/// The query heads of some rows that share a key head, over some chunks.
#[derive(Debug)]
pub struct HeadAttention<'a> {
    /// Of each row the query heads, one after the other.
    pub queries: HeadRows<'a>,
    /// Position of the first key and value.
    pub start: usize,
    /// Keys.
    pub keys: HeadRows<'a>,
    /// Values.
    pub values: HeadRows<'a>,
    /// Positions that each row sees.
    pub seen: &'a [Range<usize>],
    /// How scores are made.
    pub rule: ScoreRule,
    /// Chunks to run, joined.
    pub chunks: Range<usize>,
    /// `[rows][query heads][width of a value + HEAD_EXTRA]`; need not be set.
    pub partials: &'a mut [f32],
}

/// Sixteen numbers in one cache line.
type Vector = Aligned<[f32; LANES]>;

/// What a thread needs beside results, kept from one job to the next.
#[derive(Default)]
struct Scratch {
    /// Queries by groups, `[groups][key width][queries of the group]`.
    queries: Vec<f32>,
    /// Scores, then weights, `[queries]`.
    weights: Vec<[[f32; LANES]; HEAD_SEGMENT / LANES]>,
    /// Sixteen keys, `[key width]`.
    keys: Vec<Vector>,
    /// Sixteen columns of a segment's values, `[HEAD_SEGMENT]`.
    values: Vec<Vector>,
    /// What sums so far are multiplied with, `[queries]`.
    factors: Vec<f32>,
    /// Partials of a chunk after the first.
    partials: Vec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Queries that go through keys and values together, as many as registers hold; fewer at the end.
macro_rules! by_groups {
    ($isa_rows:expr, $count:expr, |$group:ident, $first:ident| $body:expr) => {
        let (most, mut first) = (if $isa_rows < 8 { 6 } else { 12 }, 0);
        while first < $count {
            let $first = first;
            macro_rules! run {
                ($size:literal) => {{
                    const $group: usize = $size;
                    $body;
                    first += $size;
                }};
            }
            match ($count - first).min(most) {
                12.. => run!(12),
                6.. => run!(6),
                4.. => run!(4),
                2.. => run!(2),
                _ => run!(1),
            }
        }
    };
}

impl HeadAttention<'_> {
    /// Runs it with the instructions of `isa`.
    pub fn run_on(&mut self, isa: Isa) {
        SCRATCH.with_borrow_mut(|scratch| isa.run(Attend { work: self, scratch, rows: isa.rows() }));
    }

    /// Numbers of a query's partial.
    fn each(&self) -> usize {
        self.values.width + HEAD_EXTRA
    }

    /// The positions of a segment that any row sees, without gaps.
    #[inline(always)]
    fn seen_of(&self, segment: usize) -> Range<usize> {
        let last = self.seen.iter().map(|seen| seen.end).max().unwrap_or(0).min(segment + HEAD_SEGMENT);
        let first = self.seen.iter().map(|seen| seen.start).min().unwrap_or(0).max(segment);
        first..last
    }

    /// The part of a segment that a query's row sees.
    #[inline(always)]
    fn span(&self, query: usize, heads: usize, segment: usize) -> Range<usize> {
        let seen = &self.seen[query / heads];
        let clip = |position: usize| position.clamp(segment, segment + HEAD_SEGMENT) - segment;
        clip(seen.start)..clip(seen.end)
    }
}

struct Attend<'a, 'b> {
    work: &'a mut HeadAttention<'b>,
    scratch: &'a mut Scratch,
    rows: usize,
}

impl Kernel for Attend<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Self { work, scratch, rows } = self;
        let each = work.each();
        let count = work.partials.len() / each;
        let heads = count / work.seen.len().max(1);
        gather(work, (rows, count, heads), &mut scratch.queries);
        scratch.weights.resize(count, [[0.0; LANES]; HEAD_SEGMENT / LANES]);
        scratch.keys.resize(work.keys.width.next_multiple_of(LANES), Aligned([0.0; LANES]));
        scratch.values.resize(HEAD_SEGMENT, Aligned([0.0; LANES]));
        scratch.factors.resize(count, 0.0);
        let mut own = std::mem::take(&mut work.partials);
        let mut later = std::mem::take(&mut scratch.partials);
        clear(own, each);
        for (index, chunk) in work.chunks.clone().enumerate() {
            let target = if index == 0 {
                &mut *own
            } else {
                later.resize(own.len(), 0.0);
                clear(&mut later, each);
                &mut later[..]
            };
            for segment in (chunk * HEAD_CHUNK..(chunk + 1) * HEAD_CHUNK).step_by(HEAD_SEGMENT) {
                if work.seen.iter().all(|seen| seen.end <= segment || seen.start >= segment + HEAD_SEGMENT) {
                    continue;
                }
                weigh(s, work, scratch, (rows, heads, segment), target);
                mix(s, work, scratch, (rows, heads, segment), target);
            }
            if index > 0 {
                for (own, more) in own.chunks_exact_mut(each).zip(later.chunks_exact(each)) {
                    join(s, own, more);
                }
            }
        }
        (work.partials, scratch.partials) = (std::mem::take(&mut own), later);
    }
}

/// Queries in the order in which [`score`] reads them.
#[inline(always)]
fn gather(work: &HeadAttention<'_>, (rows, count, heads): (usize, usize, usize), out: &mut Vec<f32>) {
    let width = work.keys.width;
    out.clear();
    by_groups!(rows, count, |G, first| {
        let own: [&[f32]; G] = std::array::from_fn(|g| {
            let (row, head) = ((first + g) / heads, (first + g) % heads);
            &work.queries.row(row)[head * width..][..width]
        });
        for d in 0..width {
            out.extend(own.iter().map(|query| query[d]));
        }
    });
}

/// Weights of a segment, relative to the largest score so far; maxima, totals and factors follow.
#[inline(always)]
fn weigh<S: Lanes>(
    s: S,
    work: &HeadAttention<'_>,
    scratch: &mut Scratch,
    (rows, heads, segment): (usize, usize, usize),
    partials: &mut [f32],
) {
    let (each, count, width) = (work.each(), scratch.weights.len(), work.keys.width);
    let seen = work.seen_of(segment);
    for block in (seen.start - segment) / LANES..(seen.end - segment).div_ceil(LANES) {
        let first = segment + block * LANES;
        lay_out(s, work, first.max(seen.start)..seen.end.min(first + LANES), &mut scratch.keys);
        let (keys, queries) = (&scratch.keys[..width], &scratch.queries[..]);
        by_groups!(rows, count, |G, first| {
            let queries = queries[first * width..][..G * width].as_chunks().0;
            let weights = scratch.weights[first..].first_chunk_mut().expect("scores of the group");
            score::<S, G>(s, (keys, queries), (block, work.rule.scale), weights);
        });
    }
    for query in 0..count {
        let span = work.span(query, heads, segment);
        if span.is_empty() {
            continue;
        }
        let weights = &mut scratch.weights[query];
        let [max, total] = &mut partials[query * each..][..each][each - 2..] else { continue };
        (*max, *total, scratch.factors[query]) = soften(s, weights, span, work.rule.softcap, (*max, *total));
    }
}

/// Lays out the keys of up to 16 positions of a block by dimension; the other lanes keep what was there.
#[inline(always)]
fn lay_out<S: Lanes>(s: S, work: &HeadAttention<'_>, positions: Range<usize>, out: &mut [Vector]) {
    let whole = positions.len() == LANES;
    for position in positions.clone() {
        let values = work.values.row(position - work.start);
        for at in (0..values.len()).step_by(LANES) {
            s.prefetch(&values[at..], 0); // for `mix`
        }
        if !whole {
            for (out, key) in out.iter_mut().zip(work.keys.row(position - work.start)) {
                out.0[position % LANES] = *key;
            }
        }
    }
    if whole {
        let keys = &work.keys.numbers[(positions.start - work.start) * work.keys.stride..];
        for (out, at) in out.as_chunks_mut::<LANES>().0.iter_mut().zip((0..work.keys.width).step_by(LANES)) {
            let mut rows = [s.splat(0.0); LANES];
            for lane in 0..LANES {
                rows[lane] = part(s, &keys[lane * work.keys.stride + at..][..LANES.min(work.keys.width - at)]);
            }
            s.transpose(rows, out);
        }
    }
}

/// `scores[g][block] = q_g · k · scale`, dimension by dimension.
#[inline(always)]
fn score<S: Lanes, const G: usize>(
    s: S,
    (keys, queries): (&[Vector], &[[f32; G]]),
    (block, scale): (usize, f32),
    scores: &mut [[[f32; LANES]; HEAD_SEGMENT / LANES]; G],
) {
    let mut sums = [s.splat(0.0); G];
    for (key, query) in keys.iter().zip(queries) {
        let key = s.load(&key.0);
        for g in 0..G {
            sums[g] = s.fma(s.splat(query[g]), key, sums[g]);
        }
    }
    for g in 0..G {
        s.store(s.mul(sums[g], s.splat(scale)), &mut scores[g][block]);
    }
}

/// Replaces a segment's scores by weights `e^(score − max)`; returns the largest score and the total weight so far, and the
/// factor of what was added up before.
#[inline(always)]
fn soften<S: Lanes>(
    s: S,
    scores: &mut [[f32; LANES]; HEAD_SEGMENT / LANES],
    span: Range<usize>,
    softcap: Option<f32>,
    (before, total): (f32, f32),
) -> (f32, f32, f32) {
    let blocks = span.start / LANES..span.end.div_ceil(LANES);
    let scores = &mut scores[blocks.clone()];
    let outside = |at: usize| !span.contains(&(blocks.start * LANES + at));
    let edges = (0..LANES).chain((scores.len() - 1) * LANES..scores.len() * LANES).filter(|at| outside(*at));
    if let Some(cap) = softcap {
        for block in scores.iter_mut() {
            s.store(simd::capped(s, s.load(block), cap), block);
        }
    }
    edges.clone().for_each(|at| scores[at / LANES][at % LANES] = f32::NEG_INFINITY);
    let mut largest = s.splat(before);
    for block in scores.iter() {
        largest = s.max(largest, s.load(block));
    }
    let max = simd::max(s, largest);
    let shift = s.splat(max);
    for block in scores.iter_mut() {
        s.store(simd::exp(s, s.sub(s.load(block), shift)), block);
    }
    edges.for_each(|at| scores[at / LANES][at % LANES] = 0.0);
    let mut sum = s.splat(0.0);
    for block in scores.iter() {
        sum = s.add(sum, s.load(block));
    }
    let factor = power(s, before - max);
    (max, total.mul_add(factor, simd::sum(s, sum)), factor)
}

/// Adds the weighted values of a segment to the sums.
#[inline(always)]
fn mix<S: Lanes>(
    s: S,
    work: &HeadAttention<'_>,
    scratch: &mut Scratch,
    (rows, heads, segment): (usize, usize, usize),
    partials: &mut [f32],
) {
    let each = work.each();
    let count = scratch.weights.len();
    let seen = work.seen_of(segment);
    for column in (0..work.values.width).step_by(LANES) {
        let end = work.values.width.min(column + LANES);
        // rows that lie a power of two apart would push each other out of the first-level cache
        for (position, to) in seen.clone().zip(&mut scratch.values[seen.start - segment..]) {
            s.store(part(s, &work.values.row(position - work.start)[column..end]), &mut to.0);
        }
        let values = scratch.values.first_chunk().expect("a segment");
        by_groups!(rows, count, |G, first| {
            let spans: [Range<usize>; G] = std::array::from_fn(|g| work.span(first + g, heads, segment));
            let weights = scratch.weights[first..].first_chunk().expect("weights of the group");
            let factors = scratch.factors[first..].first_chunk().expect("factors of the group");
            let out = &mut partials[first * each..][..G * each];
            add_values::<S, G>(s, (values, weights), (factors, &spans), (out, each, column..end));
        });
    }
}

/// Up to 16 columns: `sum = sum · factor + Σ weight · value`, over the positions that a row sees, in order.
#[inline(always)]
fn add_values<S: Lanes, const G: usize>(
    s: S,
    (values, weights): (&[Vector; HEAD_SEGMENT], &[[[f32; LANES]; HEAD_SEGMENT / LANES]; G]),
    (factors, spans): (&[f32; G], &[Range<usize>; G]),
    (out, each, columns): (&mut [f32], usize, Range<usize>),
) {
    let shared = spans.iter().map(|span| span.end).min().unwrap_or(0).min(HEAD_SEGMENT);
    let start = spans.iter().map(|span| span.start).max().unwrap_or(0).min(shared);
    let mut sums = [s.splat(0.0); G];
    for g in 0..G {
        for p in spans[g].start..start.min(spans[g].end) {
            sums[g] = s.fma(s.splat(weights[g].as_flattened()[p]), s.load(&values[p].0), sums[g]);
        }
    }
    for p in start..shared {
        let value = s.load(&values[p].0);
        for g in 0..G {
            sums[g] = s.fma(s.splat(weights[g].as_flattened()[p]), value, sums[g]);
        }
    }
    for g in 0..G {
        // the few positions that not all of them see: 0 · ∞ is no 0
        for p in shared.max(spans[g].start)..spans[g].end {
            sums[g] = s.fma(s.splat(weights[g].as_flattened()[p]), s.load(&values[p].0), sums[g]);
        }
        if !spans[g].is_empty() {
            let out = &mut out[g * each..][columns.clone()];
            put(s, s.fma(part(s, out), s.splat(factors[g]), sums[g]), out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{JoinHead, testing::Noise};

    struct Case {
        rule: ScoreRule,
        heads: usize,
        widths: [usize; 2],
        keys: Vec<f32>,
        values: Vec<f32>,
        queries: Vec<f32>,
        seen: Vec<Range<usize>>,
    }

    /// Numbers between two keys that belong to neither.
    const GAP: usize = 3;

    impl Case {
        /// `m` rows after `before` positions, each of which sees up to `window` positions.
        fn new(
            (heads, widths): (usize, [usize; 2]),
            (before, m, window): (usize, usize, usize),
            softcap: Option<f32>,
        ) -> Self {
            let mut noise = Noise((before + m) as u64);
            let queries = noise.numbers(m * heads * widths[0]).iter().map(|x| 4.0 * x).collect();
            let keys = noise.numbers((before + m) * (widths[0] + GAP));
            let values = noise.numbers((before + m) * widths[1]);
            let ends = before + 1..=before + m;
            let seen = ends.map(|end| end.saturating_sub(window)..end).collect();
            Self { rule: ScoreRule { scale: 0.25, softcap }, heads, widths, keys, values, queries, seen }
        }

        fn job<'a>(
            &'a self,
            (rows, chunks): (Range<usize>, Range<usize>),
            start: usize,
            partials: &'a mut [f32],
        ) -> HeadAttention<'a> {
            let [key, value] = self.widths;
            HeadAttention {
                queries: HeadRows {
                    numbers: &self.queries[rows.start * self.heads * key..],
                    stride: self.heads * key,
                    width: self.heads * key,
                },
                start,
                keys: HeadRows { numbers: &self.keys[start * (key + GAP)..], stride: key + GAP, width: key },
                values: HeadRows { numbers: &self.values[start * value..], stride: value, width: value },
                seen: &self.seen[rows],
                rule: self.rule,
                chunks,
                partials,
            }
        }

        fn chunks(&self) -> usize {
            self.seen.last().map_or(0, |seen| seen.end.div_ceil(HEAD_CHUNK))
        }

        /// Results of these rows, computed together; `cut`: each chunk by itself. `start`: positions that are not given.
        fn run(&self, isa: Isa, rows: Range<usize>, (cut, start): (bool, usize)) -> Vec<f32> {
            let each = self.widths[1] + HEAD_EXTRA;
            let jobs: Vec<Range<usize>> = if cut {
                (0..self.chunks()).map(|chunk| chunk..chunk + 1).collect()
            } else {
                std::iter::once(0..self.chunks()).collect()
            };
            let mut partials: Vec<Vec<f32>> = vec![vec![f32::NAN; rows.len() * self.heads * each]; jobs.len()];
            for (chunks, partials) in jobs.into_iter().zip(&mut partials) {
                self.job((rows.clone(), chunks), start, partials).run_on(isa);
            }
            let (first, more) = partials.split_first_mut().unwrap();
            let mut out = vec![f32::NAN; rows.len() * self.heads * self.widths[1]];
            for (query, out) in out.chunks_exact_mut(self.widths[1]).enumerate() {
                let of = query * each..(query + 1) * each;
                let more: Vec<&[f32]> = more.iter().map(|more| &more[of.clone()]).collect();
                JoinHead { partials: (&mut first[of], &more), out }.run_on(isa);
            }
            out
        }

        /// The formula, in f64.
        fn expected(&self, row: usize) -> Vec<f64> {
            let [key, value] = self.widths;
            let key_of = |p: usize| &self.keys[p * (key + GAP)..][..key];
            let mut out = Vec::new();
            for head in 0..self.heads {
                let query = &self.queries[(row * self.heads + head) * key..][..key];
                let product = |p| query.iter().zip(key_of(p)).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum::<f64>();
                let cap = |score: f64| {
                    self.rule.softcap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
                };
                let scores: Vec<f64> =
                    self.seen[row].clone().map(|p| cap(product(p) * f64::from(self.rule.scale))).collect();
                let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let total: f64 = scores.iter().map(|score| (score - max).exp()).sum();
                out.extend((0..value).map(|column| {
                    let at = |p: usize| f64::from(self.values[p * value + column]);
                    let shares = scores.iter().zip(self.seen[row].clone());
                    shares.map(|(score, p)| (score - max).exp() / total * at(p)).sum::<f64>()
                }));
            }
            out
        }
    }

    fn cases() -> Vec<Case> {
        vec![
            Case::new((1, [16, 16]), (0, 1, usize::MAX), None),
            Case::new((4, [64, 64]), (36, 5, usize::MAX), None),
            Case::new((3, [256, 128]), (570, 9, usize::MAX), Some(2.0)),
            Case::new((2, [5, 21]), (1030, 3, 17), Some(0.5)),
            Case::new((5, [40, 24]), (500, 70, 64), None),
            Case::new((8, [32, 16]), (0, 150, 100), None),
        ]
    }

    #[test]
    fn rows_have_the_values_of_the_formula() {
        for case in cases() {
            let each = case.heads * case.widths[1];
            let all = case.run(Isa::detect(), 0..case.seen.len(), (false, 0));
            for (row, own) in all.chunks_exact(each).enumerate() {
                for (own, expected) in own.iter().zip(case.expected(row)) {
                    assert!((f64::from(*own) - expected).abs() < 1e-5, "{:?}: {own}, {expected}", case.seen[row]);
                }
            }
        }
    }

    #[test]
    fn bits_depend_neither_on_the_rows_beside_nor_on_cuts_nor_on_the_instruction_set() {
        for case in cases() {
            let (rows, each) = (case.seen.len(), case.heads * case.widths[1]);
            let all = case.run(Isa::PORTABLE, 0..rows, (false, 0));
            for isa in Isa::available() {
                assert!(case.run(isa, 0..rows, (false, 0)) == all, "{}", isa.name());
                assert!(case.run(isa, 0..rows, (true, 0)) == all, "{} by chunks", isa.name());
                for row in (0..rows).step_by(4) {
                    let last = (row + 3).min(rows);
                    let some = case.run(isa, row..last, (true, 0));
                    assert!(some[..] == all[row * each..last * each], "{} rows {row}..{last}", isa.name());
                }
                let start = case.seen[rows - 1].start;
                let alone = case.run(isa, rows - 1..rows, (false, start));
                assert!(alone[..] == all[(rows - 1) * each..], "{} from {start}", isa.name());
            }
        }
    }

    #[test]
    fn what_a_row_does_not_see_cannot_reach_it() {
        let mut case = Case::new((2, [32, 48]), (90, 4, usize::MAX), None);
        let finite = case.run(Isa::detect(), 0..4, (false, 0));
        let (key, value) = (32 + GAP, 48);
        case.keys[93 * key..].fill(f32::NAN);
        case.values[93 * value..].fill(f32::INFINITY);
        let spoilt = case.run(Isa::detect(), 0..4, (false, 0));
        assert!(finite[..3 * 2 * value] == spoilt[..3 * 2 * value]);
        assert!(spoilt[3 * 2 * value..].iter().all(|x| !x.is_finite()));
    }
}
