//! Attention of the many rows of a prompt over one segment of the cache.
//!
//! What [`attend`](crate::attend) reads as halves for each few rows is converted once for all rows of a pass, and laid out
//! in the order in which the loops read it, so that they wait neither for memory nor for conversions (blocks of queries
//! against blocks of keys: Dao et al., arXiv:2205.14135). All query heads of the group share it. Invariant: a row has the
//! bits that [`attend`](crate::attend) gives it alone, since every sum is taken in the same order.

use std::cell::RefCell;

use crate::{
    attention::{MAX_HEAD_DIM, PARTIAL_EXTRA, Queries, SEGMENT, Scores, Stretch, cap, exponents, largest},
    isa::{Isa, Kernel},
    simd::{self, Aligned, LANES, Lanes},
};

/// Queries, each a row's query head, that go through a segment together. The last ones of a pass are repeated where fewer
/// are left.
const QUERIES: usize = 6;

/// Bytes between what is converted and what is asked for.
const AHEAD: usize = 4096;

/// Bytes that are requested at once.
const LINE: usize = 64;

/// Sixteen numbers in one cache line.
type Vector = Aligned<[f32; LANES]>;

/// Keys and values of a segment in `f32`.
#[derive(Debug, Default)]
struct Converted {
    /// `[position / 16 / B][2 / P][head_dim / 2][B][P]` of 16 positions.
    keys: Vec<Vector>,
    /// `[head_dim / 16 / T][SEGMENT][T]` of 16 dimensions.
    values: Vec<Vector>,
}

thread_local! {
    /// Each thread's, kept from one segment to the next: [`prompt_scratch_bytes`].
    static CONVERTED: RefCell<Converted> = RefCell::default();
}

/// Bytes that a thread keeps for [`attend_prompt`] with heads of this width.
#[must_use]
pub fn prompt_scratch_bytes(head_dim: usize) -> usize {
    2 * SEGMENT * head_dim * size_of::<f32>()
}

/// As [`attend`](crate::attend), for any number of rows: partial softmax of each row and query head; `out` is
/// `[rows][heads][head_dim + PARTIAL_EXTRA]`. What belongs to rows that see nothing of the segment is left as it was.
pub fn attend_prompt(isa: Isa, queries: Queries<'_>, stretch: Stretch<'_>, out: &mut [f32]) {
    CONVERTED.with_borrow_mut(|converted| {
        let lanes = SEGMENT * stretch.head_dim / LANES;
        converted.keys.resize(lanes, Aligned([0.0; LANES]));
        converted.values.resize(lanes, Aligned([0.0; LANES]));
        let has_pairs = stretch.head_dim.is_multiple_of(2 * LANES);
        match (isa.rows() < 8, has_pairs) {
            (true, _) => isa.run(Attend::<1, 1, 1> { queries, stretch, converted, out }),
            (false, true) => isa.run(Attend::<2, 2, 2> { queries, stretch, converted, out }),
            (false, false) => isa.run(Attend::<2, 2, 1> { queries, stretch, converted, out }),
        }
    });
}

/// As many sums as registers hold: `B` blocks of 16 keys in `P` partial sums each, then `T` times 16 dimensions of values.
struct Attend<'a, const B: usize, const P: usize, const T: usize> {
    queries: Queries<'a>,
    stretch: Stretch<'a>,
    converted: &'a mut Converted,
    out: &'a mut [f32],
}

impl<const B: usize, const P: usize, const T: usize> Kernel for Attend<'_, B, P, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Self { queries, stretch, converted, out } = self;
        let head_dim = stretch.head_dim;
        let first = stretch.start(queries.rows - 1);
        convert_keys::<S, B, P>(s, (stretch, first), &mut converted.keys);
        convert_values::<S, T>(s, (stretch, first), &mut converted.values);
        let each = head_dim + PARTIAL_EXTRA;
        let count = out.len() / each;
        let mut places = Places { next: Place::default(), rows: queries.rows, heads: count / queries.rows };
        // the next segment lies after this one, and is most likely what this thread converts next
        let lines = SEGMENT * head_dim * size_of::<u16>() / LINE;
        let mut gathered = [[0.0; MAX_HEAD_DIM]; QUERIES];
        let mut scores = Aligned([[[0.0; LANES]; SEGMENT / LANES]; QUERIES]);
        let scores = &mut scores.0;
        for (first, out) in (0..count).step_by(QUERIES).zip(out.chunks_mut(QUERIES * each)) {
            let mut own = [places.next; QUERIES];
            own.iter_mut().for_each(|place| *place = places.take());
            let seen = own.map(|place| {
                let after = queries.rows - 1 - place.row;
                [stretch.start(after), stretch.len(after)]
            });
            let (start, end) = (seen[0][0], seen[QUERIES - 1][1]);
            if start >= end {
                continue; // before all windows, or after all rows
            }
            for at in
                (lines * first / count..lines * (first + QUERIES).min(count) / count).map(|line| (line + lines) * LINE)
            {
                s.prefetch_far(stretch.keys, at);
                s.prefetch_far(stretch.values, at);
            }
            gather(queries, head_dim, own, &mut gathered);
            score::<S, B, P>(s, &gathered, (&converted.keys, head_dim), [start, end], scores);
            for scores in &mut *scores {
                cap(s, scores, (stretch.cap, start / LANES));
            }
            // one step for all queries after the other: the steps of one query wait for each other
            let mut totals = [s.splat(0.0); QUERIES];
            let mut maxima = [0.0; QUERIES];
            for g in 0..QUERIES {
                maxima[g] = largest(s, &mut scores[g], seen[g]);
            }
            for g in 0..QUERIES {
                totals[g] = exponents(s, &mut scores[g], seen[g], maxima[g]);
            }
            for (g, out) in out.chunks_exact_mut(each).enumerate() {
                [out[head_dim], out[head_dim + 1]] = [maxima[g], simd::sum(s, totals[g])];
            }
            for (tile, values) in converted.values.chunks_exact(T * SEGMENT).enumerate() {
                mix::<S, T>(s, (scores, &seen), values.as_chunks().0, (out, each, tile * T * LANES));
            }
        }
    }
}

#[inline(always)]
fn convert_keys<S: Lanes, const B: usize, const P: usize>(
    s: S,
    (stretch, first): (Stretch<'_>, usize),
    to: &mut [Vector],
) {
    let head_dim = stretch.head_dim;
    let (first, blocks) = (first / LANES, stretch.len(0).div_ceil(LANES));
    for (block, from) in (first..blocks).zip(stretch.keys[first * head_dim..].chunks_exact(head_dim)) {
        let to = &mut to[block / B * B * head_dim..][..B * head_dim];
        for (d, from) in from.as_chunks::<2>().0.iter().enumerate() {
            s.prefetch(from, AHEAD);
            for (parity, from) in from.iter().enumerate() {
                let at = match P {
                    2 => (d * B + block % B) * 2 + parity,
                    _ => (parity * head_dim / 2 + d) * B + block % B,
                };
                s.store(s.load_f16(from), &mut to[at].0);
            }
        }
    }
}

#[inline(always)]
fn convert_values<S: Lanes, const T: usize>(s: S, (stretch, first): (Stretch<'_>, usize), to: &mut [Vector]) {
    let tiles = stretch.head_dim / LANES;
    for (position, from) in (first..stretch.len(0)).zip(stretch.values[first * tiles..].chunks_exact(tiles)) {
        for (tile, from) in from.chunks_exact(T).enumerate() {
            s.prefetch(from, AHEAD);
            for (from, to) in from.iter().zip(&mut to[(tile * SEGMENT + position) * T..]) {
                s.store(s.load_f16(from), &mut to.0);
            }
        }
    }
}

/// A row's query head.
#[derive(Clone, Copy, Default)]
struct Place {
    row: usize,
    head: usize,
}

/// All query heads of all rows, row by row; the last one is repeated.
struct Places {
    next: Place,
    rows: usize,
    heads: usize,
}

impl Places {
    #[inline(always)]
    fn take(&mut self) -> Place {
        let taken = self.next;
        if taken.head + 1 < self.heads {
            self.next.head += 1;
        } else if taken.row + 1 < self.rows {
            self.next = Place { row: taken.row + 1, head: 0 };
        }
        taken
    }
}

/// Gathers queries from their tiles.
#[inline(always)]
fn gather(
    queries: Queries<'_>,
    head_dim: usize,
    places: [Place; QUERIES],
    gathered: &mut [[f32; MAX_HEAD_DIM]; QUERIES],
) {
    for (query, Place { row, head }) in gathered.iter_mut().zip(places) {
        let first = head * (head_dim / LANES * queries.m) + queries.first + row;
        let tiles = queries.tiles[first..].iter().step_by(queries.m).take(head_dim / LANES);
        query.as_chunks_mut::<LANES>().0.iter_mut().zip(tiles).for_each(|(to, tile)| *to = *tile);
    }
}

/// `scores[g][p] = q_g · k_p`, in two partial sums of even and odd dimensions. Positions before `start` and from `len` on,
/// up to whole blocks, get numbers that mean nothing.
#[inline(always)]
fn score<S: Lanes, const B: usize, const P: usize>(
    s: S,
    queries: &[[f32; MAX_HEAD_DIM]; QUERIES],
    (keys, head_dim): (&[Vector], usize),
    [start, len]: [usize; 2],
    scores: &mut [Scores; QUERIES],
) {
    let (first, blocks) = (start / (B * LANES), len.div_ceil(B * LANES));
    for (at, keys) in (first..blocks).zip(keys[first * B * head_dim..].chunks_exact(B * head_dim)) {
        let block = at * B;
        for (parity, keys) in keys.chunks_exact(B * head_dim * P / 2).enumerate() {
            let mut sums = [[[s.splat(0.0); P]; B]; QUERIES];
            for (d, keys) in keys.as_chunks::<P>().0.as_chunks::<B>().0.iter().enumerate().take(MAX_HEAD_DIM / 2) {
                let mut own = [[s.splat(0.0); P]; B];
                for i in 0..B {
                    for j in 0..P {
                        own[i][j] = s.load(&keys[i][j].0);
                    }
                }
                for g in 0..QUERIES {
                    for j in 0..P {
                        let query = s.splat(queries[g][2 * d + parity + j]);
                        for i in 0..B {
                            sums[g][i][j] = s.fma(query, own[i][j], sums[g][i][j]);
                        }
                    }
                }
            }
            for g in 0..QUERIES {
                for i in 0..B {
                    let to = &mut scores[g][block + i];
                    let sum = match P {
                        2 => s.add(sums[g][i][0], sums[g][i][P - 1]),
                        _ if parity == 0 => sums[g][i][0],
                        _ => s.add(s.load(to), sums[g][i][0]),
                    };
                    s.store(sum, to);
                }
            }
        }
    }
}

/// `out[g] = Σ_p weight[g][p] · v_p`, of `T` times 16 dimensions from `at` on.
#[inline(always)]
fn mix<S: Lanes, const T: usize>(
    s: S,
    (weights, seen): (&[Scores; QUERIES], &[[usize; 2]; QUERIES]),
    values: &[[Vector; T]],
    (out, each, at): (&mut [f32], usize, usize),
) {
    let [start, shared] = seen[0];
    let mut sums = [[s.splat(0.0); T]; QUERIES];
    for (p, row) in (start..shared).zip(&values[start..]) {
        let mut own = [s.splat(0.0); T];
        for t in 0..T {
            own[t] = s.load(&row[t].0);
        }
        for g in 0..QUERIES {
            let weight = s.splat(weights[g].as_flattened()[p]);
            for t in 0..T {
                sums[g][t] = s.fma(weight, own[t], sums[g][t]);
            }
        }
    }
    for (g, out) in out.chunks_exact_mut(each).enumerate() {
        // The few positions that later rows alone see: others must not touch them, 0 · ∞ is no 0.
        for (p, row) in values.iter().enumerate().take(seen[g][1]).skip(shared) {
            let weight = s.splat(weights[g].as_flattened()[p]);
            for t in 0..T {
                sums[g][t] = s.fma(weight, s.load(&row[t].0), sums[g][t]);
            }
        }
        for (to, sum) in out[at..].as_chunks_mut().0.iter_mut().zip(sums[g]) {
            s.store(sum, to);
        }
    }
}
