//! Attention on the native kernels over a [`KvCache`] in a CPU's memory.
//!
//! Invariant: few rows and the rows of a prompt run through the same kernel, which cuts positions at the same places, so a
//! row has the same bits in every pass. A tree's rows share the chunks before them; in later ones each sees copies of its
//! ancestors' keys and values where they would be in a chain.

use std::iter::once;
use std::ops::Range;

use candle_core::Tensor;
use draftscope_kernels::{HEAD_CHUNK, HEAD_EXTRA, HeadAttention, HeadRows, Isa, JoinHead, ScoreRule};

use crate::ModelError;
use crate::nn::attention::AnswerOrder;
use crate::nn::cpu::numbers;
use crate::nn::pass_rows::Seen;
use crate::nn::{Kernels, KvCache, PassRows, Scores};

/// Jobs a thread, at least, so that none waits long for the last.
const JOBS_A_THREAD: usize = 2;

/// Fewest rows of a job of a prompt, which lays out all keys.
const FEWEST_ROWS: usize = 4;

/// Fewest query heads of a job of a few rows, for the same reason.
const FEWEST_QUERIES: usize = 4;

/// Attention of `q [heads, m, hd]` over what each row sees of the cache, which contains the rows already: `-> [m, heads,
/// width of a value]`, or `[heads, m, …]`. `None` where candle must do it.
///
/// # Errors
/// When memory is short or shapes do not fit.
pub(super) fn attend_on_kernels(
    q: &Tensor,
    cache: &KvCache,
    (rows, window): (&PassRows, Option<usize>),
    (scores, order): (Scores, AnswerOrder),
) -> Result<Option<Tensor>, ModelError> {
    let Some(kernels) = cache.kernels() else { return Ok(None) };
    let (heads, m, _) = q.dims3()?;
    let queries: Vec<f32> = q.transpose(0, 1)?.flatten_all()?.to_vec1()?; // [m][heads][hd]
    let seen: Vec<Seen> = (0..m).map(|row| rows.seen(row, window)).collect();
    let positions: Vec<Range<usize>> = seen.iter().map(Seen::in_chain).collect();
    let (kv_heads, width) = cache.values_shape();
    let parts = match rows.is_prompt() {
        true => 1,
        false => parts_of_a_group(&positions, (kv_heads, heads / kv_heads), kernels.threads()),
    };
    let work = Work {
        kernels,
        queries: &queries,
        positions: &positions,
        heads: (kv_heads * parts, heads / kv_heads / parts),
        parts,
        width,
        rule: ScoreRule { scale: scores.scale as f32, softcap: scores.softcap.map(|cap| cap as f32) },
    };
    let cuts = work.cuts(rows.is_prompt());
    let mut partials = vec![0.0; cuts.len() * work.cut_numbers()];
    let done = if rows.is_tree() {
        let shared = (rows.start() / HEAD_CHUNK).saturating_sub(work.first_chunk()).min(cuts.len());
        let (before, after) = partials.split_at_mut(shared * work.cut_numbers());
        let cached = cache.range(0..rows.start())?;
        let mut done = work.attend((&cuts[..shared], &work.blocks(false)), cached, 0, before);
        for (row, Seen { range, and, end }) in seen.into_iter().enumerate() {
            let start = (work.first_chunk() + shared) * HEAD_CHUNK;
            let own = Seen { range: range.start.max(start).min(range.end)..range.end, and, end };
            let block: Vec<_> = once(row..row + 1).collect();
            done = done.and(work.attend((&cuts[shared..], &block), cache.seen(&own)?, own.in_chain().start, after));
        }
        done
    } else {
        let start = rows.first(window);
        let cached = cache.range(start..rows.end())?;
        work.attend((&cuts, &work.blocks(rows.is_prompt())), cached, start, &mut partials)
    };
    let shape = match order {
        AnswerOrder::Rows => (m, heads, width),
        AnswerOrder::Heads => (heads, m, width),
    };
    let answers = |()| Tensor::from_vec(work.join(partials, order), shape, q.device());
    Ok(done.map(answers).transpose()?)
}

/// Into how many parts the query heads that share a key head are cut, so that a few rows keep all threads busy.
fn parts_of_a_group(positions: &[Range<usize>], (kv_heads, group): (usize, usize), threads: usize) -> usize {
    let seen = positions.iter().map(Range::len).max().unwrap_or(0);
    let jobs = kv_heads * seen.div_ceil(HEAD_CHUNK);
    let fits = |parts: &usize| group.is_multiple_of(*parts) && jobs * parts >= JOBS_A_THREAD * threads;
    let most = (group / FEWEST_QUERIES).max(1);
    (1..=most).find(fits).unwrap_or_else(|| (1..=most).rev().find(|parts| group.is_multiple_of(*parts)).unwrap_or(1))
}

/// Attention of the rows of a pass.
struct Work<'a> {
    kernels: &'a dyn Kernels,
    /// `[rows][heads][hd]`
    queries: &'a [f32],
    /// Positions that each row sees.
    positions: &'a [Range<usize>],
    /// Groups of query heads, and the heads of a group.
    heads: (usize, usize),
    /// Groups that share a key head.
    parts: usize,
    /// Width of a value.
    width: usize,
    rule: ScoreRule,
}

impl Work<'_> {
    /// Numbers of a row's partials of a group.
    fn row_numbers(&self) -> usize {
        self.heads.1 * (self.width + HEAD_EXTRA)
    }

    /// Numbers of the partials of all rows and heads.
    fn cut_numbers(&self) -> usize {
        self.heads.0 * self.positions.len() * self.row_numbers()
    }

    fn first_chunk(&self) -> usize {
        self.positions.iter().map(|seen| seen.start).min().unwrap_or(0) / HEAD_CHUNK
    }

    /// How chunks are cut into jobs: each is one for few rows, all of them are one for those of a prompt.
    fn cuts(&self, is_prompt: bool) -> Vec<Range<usize>> {
        let last = self.positions.iter().map(|seen| seen.end).max().unwrap_or(0).div_ceil(HEAD_CHUNK);
        if is_prompt {
            return once(self.first_chunk()..last).collect();
        }
        (self.first_chunk()..last).map(|chunk| chunk..chunk + 1).collect()
    }

    /// How rows are cut into jobs.
    fn blocks(&self, is_prompt: bool) -> Vec<Range<usize>> {
        let rows = self.positions.len();
        let jobs = (JOBS_A_THREAD * self.kernels.threads()).div_ceil(self.heads.0);
        let count = if is_prompt { jobs.clamp(1, rows / FEWEST_ROWS) } else { 1 };
        (0..count).map(|block| block * rows / count..(block + 1) * rows / count).collect()
    }

    /// Attention of some rows over some cuts, whose partials are `[cuts][groups][rows][query heads][…]`; `start` is the
    /// position of the first key and value. `None` if these are not f32 in a CPU's memory.
    fn attend(
        &self,
        (cuts, blocks): (&[Range<usize>], &[Range<usize>]),
        (keys, values): (Tensor, Tensor),
        start: usize,
        partials: &mut [f32],
    ) -> Option<()> {
        let (keys, values) = (numbers(&keys)?, numbers(&values)?);
        let (keys, values) = (keys.heads(), values.heads());
        let mut jobs = Vec::with_capacity(cuts.len() * self.heads.0 * blocks.len());
        let each = self.row_numbers();
        let mut parts = partials.chunks_exact_mut(self.positions.len() * each);
        for (cut, group) in cuts.iter().flat_map(|cut| (0..self.heads.0).map(move |group| (cut, group))) {
            let shared = (keys[group / self.parts], values[group / self.parts], start);
            let mut left = parts.next().unwrap_or_default();
            let mut row = 0;
            for block in blocks {
                left = left.split_at_mut((block.start - row) * each).1;
                let own;
                (own, left) = left.split_at_mut(block.len() * each);
                jobs.push(self.job((block.clone(), group), shared, cut.clone(), own));
                row = block.end;
            }
        }
        self.kernels.attend(&mut jobs);
        Some(())
    }

    fn job<'b>(
        &'b self,
        (block, group): (Range<usize>, usize),
        (keys, values, start): (HeadRows<'b>, HeadRows<'b>, usize),
        chunks: Range<usize>,
        partials: &'b mut [f32],
    ) -> HeadAttention<'b> {
        let own = self.heads.1 * keys.width;
        let stride = self.queries.len() / self.positions.len();
        HeadAttention {
            queries: HeadRows { numbers: &self.queries[block.start * stride + group * own..], stride, width: own },
            start,
            keys,
            values,
            seen: &self.positions[block],
            rule: self.rule,
            chunks,
            partials,
        }
    }

    /// The answers in this order, from the partials of all cuts.
    fn join(&self, mut partials: Vec<f32>, order: AnswerOrder) -> Vec<f32> {
        let ((groups, group), rows) = (self.heads, self.positions.len());
        let each = self.width + HEAD_EXTRA;
        let mut out = vec![0.0; rows * groups * group * self.width];
        let (first, more) = partials.split_at_mut(self.cut_numbers());
        for (at, out) in out.chunks_exact_mut(self.width).enumerate() {
            let (row, head) = match order {
                AnswerOrder::Rows => (at / (groups * group), at % (groups * group)),
                AnswerOrder::Heads => (at % rows, at / rows),
            };
            let place = ((head / group * rows + row) * group + head % group) * each;
            let more: Vec<_> = more.chunks_exact(self.cut_numbers()).map(|more| &more[place..place + each]).collect();
            JoinHead { partials: (&mut first[place..place + each], &more), out }.run_on(Isa::detect());
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use candle_core::Device;

    use super::*;
    use crate::native::NativeCpu;
    use crate::nn::{TreeRows, attend_cached};
    use crate::options::PassForm;

    const SCORES: Scores = Scores { scale: 0.5, softcap: None };

    fn noise(shape: (usize, usize, usize), seed: usize) -> Tensor {
        let number = |at: usize| ((at * 7919 + seed * 104_729) % 1009) as f32 / 504.5 - 1.0;
        let count = shape.0 * shape.1 * shape.2;
        Tensor::from_vec((0..count).map(number).collect::<Vec<_>>(), shape, &Device::Cpu).unwrap()
    }

    /// A cache of 2 heads of 24 with `before` positions and then `rows`.
    fn cache(before: usize, rows: &Tensor) -> KvCache {
        let kernels: Arc<dyn Kernels> = Arc::new(NativeCpu::new(Some(2)));
        let ctx = before + rows.dim(1).unwrap();
        let mut cache = KvCache::new(2, ctx, 24, (&Device::Cpu, PassForm::CPU)).unwrap().on(Some(kernels));
        if before > 0 {
            cache.append(&noise((2, before, 24), 1), &noise((2, before, 24), 2)).unwrap();
        }
        cache.append(rows, &rows.neg().unwrap()).unwrap();
        cache
    }

    fn answers(q: &Tensor, cache: &KvCache, rows: (&PassRows, Option<usize>)) -> Vec<Vec<f32>> {
        attend_cached(q, cache, rows, SCORES).unwrap().to_vec2().unwrap()
    }

    #[test]
    fn rows_of_a_tree_have_the_bits_of_a_chain() {
        // each row continues the one before the last, or row 0: two paths beside each other
        let parents = [0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
        let tree = TreeRows::new(&parents).unwrap();
        let path = [0, 2, 4, 6, 8, 10];
        let (q, rows) = (noise((6, 12, 24), 3), noise((2, 12, 24), 4));
        let pick = |x: &Tensor| x.index_select(&Tensor::new(&path.map(|row| row as u32), &Device::Cpu).unwrap(), 1);
        for before in [0, 1, 20, 250, 255, 256, 600] {
            for window in [None, Some(1), Some(3), Some(300)] {
                let as_tree = answers(&q, &cache(before, &rows), (&PassRows::tree(before, &tree), window));
                let in_path = cache(before, &pick(&rows).unwrap());
                let chain = answers(&pick(&q).unwrap(), &in_path, (&PassRows::chain(before, 6), window));
                for (at, row) in path.into_iter().enumerate() {
                    assert!(as_tree[row] == chain[at], "row {row} after {before}, window {window:?}");
                }
            }
        }
    }

    #[test]
    fn a_row_has_the_same_bits_in_a_prompt_and_alone() {
        let (q, rows) = (noise((6, 40, 24), 5), noise((2, 40, 24), 6));
        for (before, window) in [(0, None), (240, None), (240, Some(9))] {
            let cache = cache(before, &rows);
            let prompt = answers(&q, &cache, (&PassRows::chain(before, 40), window));
            for (row, in_prompt) in prompt.iter().enumerate() {
                let one = q.narrow(1, row, 1).unwrap();
                let alone = answers(&one, &cache, (&PassRows::chain(before + row, 1), window));
                assert!(alone[0] == *in_prompt, "row {row} after {before}, window {window:?}");
            }
        }
    }
}
