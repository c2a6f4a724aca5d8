//! Attention of all heads over the same cached rows.
//!
//! Positions are cut into chunks, each giving partial sums, which are joined in order. Few rows have a job for each chunk,
//! those of a prompt one for all chunks. Invariant: chunks are cut by position alone, so a row has the same bits in every
//! pass.

use std::ops::Range;

use super::matrix::Cpu;
use draftscope_kernels::{HEAD_CHUNK, HEAD_EXTRA, HeadAttention, HeadRows, JoinHead, MAX_ROWS, ScoreRule};

/// Jobs a thread, at least, so that none waits long for the last.
const JOBS_A_THREAD: usize = 2;

/// Fewest rows of a job of a prompt, which lays out all keys.
const FEWEST_ROWS: usize = 4;

/// Fewest query heads of a job of a few rows, for the same reason.
const FEWEST_QUERIES: usize = 4;

/// Partial sums, kept from one pass to the next.
pub(super) type Partials = Vec<f32>;

/// What attends.
#[derive(Clone, Copy)]
pub(super) struct Attend<'a> {
    pub(super) cpu: &'a Cpu,
    pub(super) heads: usize,
    /// Numbers of a cached row that are its value.
    pub(super) rank: usize,
    /// Numbers of a cached row, and of a query.
    pub(super) width: usize,
    pub(super) rule: ScoreRule,
}

impl Attend<'_> {
    /// Rows of queries `[m][heads][width]`, of which the first sees so many positions and each later one another one;
    /// answers go to `out`, `[heads][m][rank]`.
    pub(super) fn run(
        self,
        (queries, first_sees): (&[f32], usize),
        cache: &[f32],
        partials: &mut Partials,
        (out, m): (&mut [f32], usize),
    ) {
        let seen: Vec<Range<usize>> = (0..m).map(|row| 0..first_sees + row).collect();
        let is_prompt = m > MAX_ROWS;
        let chunks = (first_sees + m - 1).div_ceil(HEAD_CHUNK);
        let parts = if is_prompt { 1 } else { self.parts(chunks) };
        let (group, each) = (self.heads / parts, self.rank + HEAD_EXTRA);
        let cuts = if is_prompt { 1 } else { chunks };
        let of_chunks = |cut: usize| if is_prompt { 0..chunks } else { cut..cut + 1 };
        let blocks = self.blocks(is_prompt, (m, parts));
        partials.resize(cuts * self.heads * m * each, 0.0);
        let rows = |width: usize| HeadRows { numbers: cache, stride: self.width, width };
        let mut left = &mut partials[..];
        let mut jobs = Vec::with_capacity(cuts * parts * blocks.len());
        for (cut, part) in (0..cuts).flat_map(|cut| (0..parts).map(move |part| (cut, part))) {
            for block in &blocks {
                let own;
                (own, left) = std::mem::take(&mut left).split_at_mut(block.len() * group * each);
                let from = (block.start * self.heads + part * group) * self.width;
                jobs.push(HeadAttention {
                    queries: HeadRows {
                        numbers: &queries[from..],
                        stride: self.heads * self.width,
                        width: group * self.width,
                    },
                    start: 0,
                    keys: rows(self.width),
                    values: rows(self.rank),
                    seen: &seen[block.clone()],
                    rule: self.rule,
                    chunks: of_chunks(cut),
                    partials: own,
                });
            }
        }
        self.cpu.pool.each(&mut jobs, |_, job| job.run_on(self.cpu.isa));
        drop(jobs);
        self.join(partials, (m, group), out);
    }

    /// Into how many parts the heads are cut, so that a few rows keep all threads busy.
    fn parts(self, chunks: usize) -> usize {
        let fits = |parts: &usize| {
            self.heads.is_multiple_of(*parts) && chunks * parts >= JOBS_A_THREAD * self.cpu.pool.threads()
        };
        let most = (self.heads / FEWEST_QUERIES).max(1);
        let whole = || (1..=most).rev().find(|parts| self.heads.is_multiple_of(*parts));
        (1..=most).find(fits).or_else(whole).unwrap_or(1)
    }

    /// How rows are cut into jobs.
    fn blocks(self, is_prompt: bool, (m, parts): (usize, usize)) -> Vec<Range<usize>> {
        let jobs = (JOBS_A_THREAD * self.cpu.pool.threads()).div_ceil(parts);
        let count = if is_prompt { jobs.clamp(1, m / FEWEST_ROWS) } else { 1 };
        (0..count).map(|block| block * m / count..(block + 1) * m / count).collect()
    }

    /// The answers, from partials `[cuts][parts][m][group][rank + HEAD_EXTRA]`.
    fn join(self, partials: &[f32], (m, group): (usize, usize), out: &mut [f32]) {
        let each = self.rank + HEAD_EXTRA;
        let of_cut = self.heads * m * each;
        self.cpu.pool.chunks(out, self.rank, |at, out| {
            let (head, row) = (at / m, at % m);
            let place = ((head / group * m + row) * group + head % group) * each;
            let mut cuts = partials.chunks_exact(of_cut).map(|cut| &cut[place..place + each]);
            let mut first = cuts.next().unwrap_or_default().to_vec();
            let more: Vec<_> = cuts.collect();
            JoinHead { partials: (&mut first, &more), out }.run_on(self.cpu.isa);
        });
    }
}
