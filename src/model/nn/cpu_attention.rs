//! Attention on the native kernels over a [`KvCache`] in a CPU's memory.
//!
//! Invariant: few rows and the rows of a prompt run through the same kernel, which cuts positions at the same places, so a
//! row has the same bits in every pass. A tree's row sees copies of its ancestors' keys and values where they would be in a
//! chain.

use std::iter::once;
use std::ops::Range;

use candle_core::Tensor;
use draftscope_kernels::{HEAD_CHUNK, HEAD_EXTRA, HeadAttention, HeadRows, Isa, JoinHead, ScoreRule};

use crate::model::ModelError;
use crate::model::nn::cpu::numbers;
use crate::model::nn::{Kernels, KvCache, PassRows, ROW_BY_ROW, Scores};

/// Jobs a thread, at least, so that none waits long for the last.
const JOBS_A_THREAD: usize = 2;

/// Rows that follow each other, and the keys and values that they see.
struct Seen {
    rows: Range<usize>,
    /// `[kv_heads, n, …]`
    cached: (Tensor, Tensor),
    /// Position of the first key.
    start: usize,
    /// Positions that each row sees.
    positions: Vec<Range<usize>>,
}

/// Attention of `q [heads, m, hd]` over what each row sees of the cache, which contains the rows already: `-> [m, heads ·
/// width of a value]`. `None` where candle must do it.
///
/// # Errors
/// When memory is short or shapes do not fit.
pub(super) fn attend_on_kernels(
    q: &Tensor,
    cache: &KvCache,
    (rows, window): (&PassRows, Option<usize>),
    scores: Scores,
) -> Result<Option<Tensor>, ModelError> {
    let Some(kernels) = cache.kernels() else { return Ok(None) };
    let (heads, m, head_dim) = q.dims3()?;
    let queries: Vec<f32> = q.transpose(0, 1)?.flatten_all()?.to_vec1()?; // [m][heads][hd]
    let mut out = Vec::new();
    for seen in seen_by(cache, rows, window)? {
        let ((keys, values), of_rows) = (&seen.cached, seen.rows.start * heads * head_dim);
        let (Some(own_keys), Some(own_values)) = (numbers(keys), numbers(values)) else { return Ok(None) };
        let work = Work {
            queries: &queries[of_rows..seen.rows.end * heads * head_dim],
            positions: &seen.positions,
            start: seen.start,
            group: heads / keys.dim(0)?,
            rule: ScoreRule { scale: scores.scale as f32, softcap: scores.softcap.map(|cap| cap as f32) },
        };
        work.run(kernels, (&own_keys.heads(), &own_values.heads()), &mut out);
    }
    let width = out.len() / m;
    Ok(Some(Tensor::from_vec(out, (m, width), q.device())?))
}

/// All rows of a chain together; of a tree, each row with its ancestors.
fn seen_by(cache: &KvCache, rows: &PassRows, window: Option<usize>) -> Result<Vec<Seen>, ModelError> {
    if !rows.is_tree() {
        let start = rows.first(window);
        let cached = cache.range(start..rows.end())?;
        let positions = (0..rows.count()).map(|row| rows.seen(row, window).range).collect();
        return Ok(vec![Seen { rows: 0..rows.count(), cached, start, positions }]);
    }
    let of_row = |row| {
        let seen = rows.seen(row, window);
        let start = seen.range.start;
        let cached = cache.seen(&seen)?;
        let positions = once(start..start + seen.range.len() + seen.and.len()).collect();
        Ok(Seen { rows: row..row + 1, cached, start, positions })
    };
    (0..rows.count()).map(of_row).collect()
}

/// Attention of some rows.
struct Work<'a> {
    /// From the first row on, `[rows][heads][hd]`.
    queries: &'a [f32],
    /// Positions that each row sees.
    positions: &'a [Range<usize>],
    /// Position of the first key.
    start: usize,
    /// Query heads that share a key head.
    group: usize,
    rule: ScoreRule,
}

impl<'a> Work<'a> {
    /// Appends `[rows][heads][width of a value]` to `out`; `keys` and `values` are those of each key head.
    fn run(&self, kernels: &dyn Kernels, (keys, values): (&[HeadRows<'_>], &[HeadRows<'_>]), out: &mut Vec<f32>) {
        let Some(width) = values.first().map(|head| head.width) else { return };
        let (rows, heads, each) = (self.positions.len(), keys.len() * self.group, width + HEAD_EXTRA);
        let (blocks, cuts) = self.cuts(JOBS_A_THREAD * kernels.threads(), keys.len());
        let mut partials = vec![0.0; cuts.len() * rows * heads * each]; // [cuts][kv_heads][rows][group][each]
        let mut jobs = Vec::with_capacity(cuts.len() * keys.len() * blocks.len());
        let mut left = &mut partials[..];
        for (cut, head) in cuts.iter().flat_map(|cut| (0..keys.len()).map(move |head| (cut, head))) {
            for block in &blocks {
                let own = left.split_off_mut(..block.len() * self.group * each).unwrap_or_default();
                jobs.push(self.job((block.clone(), head), cut.clone(), (keys[head], values[head]), own));
            }
        }
        kernels.attend(&mut jobs);
        drop(jobs);
        let done = out.len();
        out.resize(done + rows * heads * width, 0.0);
        let (first, more) = partials.split_at_mut(rows * heads * each);
        for (at, out) in out[done..].chunks_exact_mut(width).enumerate() {
            let (row, head) = (at / heads, at % heads);
            let place = ((head / self.group * rows + row) * self.group + head % self.group) * each;
            let more: Vec<_> = more.chunks_exact(rows * heads * each).map(|more| &more[place..place + each]).collect();
            JoinHead { partials: (&mut first[place..place + each], &more), out }.run_on(Isa::detect());
        }
    }

    /// How rows and chunks are cut into jobs: each chunk is one for all of a few rows, each block of a prompt's rows one
    /// for all chunks.
    fn cuts(&self, jobs: usize, kv_heads: usize) -> (Vec<Range<usize>>, Vec<Range<usize>>) {
        let rows = self.positions.len();
        let first = self.positions.iter().map(|seen| seen.start).min().unwrap_or(0) / HEAD_CHUNK;
        let last = self.positions.iter().map(|seen| seen.end).max().unwrap_or(0).div_ceil(HEAD_CHUNK);
        if rows <= ROW_BY_ROW {
            return (once(0..rows).collect(), (first..last).map(|chunk| chunk..chunk + 1).collect());
        }
        let count = jobs.div_ceil(kv_heads).clamp(1, rows / ROW_BY_ROW);
        let blocks = (0..count).map(|block| block * rows / count..(block + 1) * rows / count);
        (blocks.collect(), once(first..last).collect())
    }

    fn job(
        &self,
        (block, head): (Range<usize>, usize),
        chunks: Range<usize>,
        (keys, values): (HeadRows<'a>, HeadRows<'a>),
        partials: &'a mut [f32],
    ) -> HeadAttention<'a> {
        let own = self.group * keys.width;
        let stride = self.queries.len() / self.positions.len();
        HeadAttention {
            queries: HeadRows { numbers: &self.queries[block.start * stride + head * own..], stride, width: own },
            start: self.start,
            keys,
            values,
            seen: &self.positions[block],
            rule: self.rule,
            chunks,
            partials,
        }
    }
}
