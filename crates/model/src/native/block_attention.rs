//! Attention of a block drafter's rows: to the cached context and to each other, in both directions.
//!
//! Keys and values of the rows lie after those of the context, where the next block overwrites them. Invariant: rows attend one
//! by one, so a row's bits depend on what it sees alone.

use super::attention::Attention;
use super::cache::LayerCache;
use super::layer::{BlockShape, Layer, Scratch};
use super::matrix::Matrix;
use super::mixer::Mixer;
use super::parts::unsupported;
use super::pass::{HeadOut, Partials, Pass};
use super::rule::Rule;
use crate::ModelError;
use crate::plan::Sight;
use draftscope_kernels::{Acts, LANES, PARTIAL_EXTRA, Queries, SEGMENT, attend};

/// What a row sees: the position after the last, and how many positions up to there.
fn seen(pass: &Pass<'_>, sight: Sight, row: usize) -> (usize, usize) {
    let (own, window) = (pass.base + row, sight.window.unwrap_or(usize::MAX));
    let end = if sight.causal { own + 1 } else { own.saturating_add(window).min(pass.base + pass.m) };
    (end, end - (own + 1).saturating_sub(window))
}

/// The attention of a layer.
///
/// # Errors
/// [`ModelError::Unsupported`] when it has another mixer.
pub(super) fn attention(layer: &Layer) -> Result<&Attention, ModelError> {
    match &layer.mixer {
        Mixer::Attention(attention) => Ok(attention),
        Mixer::Latent(_) | Mixer::Delta(_) => Err(unsupported("a block drafter without attention")),
    }
}

impl Attention {
    /// Keys and values of the rows in `acts` to the cache.
    pub(super) fn inject(
        &self,
        pass: Pass<'_>,
        acts: &Acts,
        (mut cache, heads): (LayerCache<'_>, &mut Vec<[f32; LANES]>),
    ) {
        let BlockShape { heads: queries, kv_heads, head_dim, .. } = *pass.shape;
        let tiles = head_dim / LANES * pass.m;
        heads.resize(2 * kv_heads * tiles, [0.0; LANES]);
        let slabs = cache.slabs(pass.base..pass.base + pass.m);
        let (keys, values): (Vec<_>, Vec<_>) =
            slabs.into_iter().map(|[k, v]| (HeadOut::Key(k), HeadOut::Value(v))).unzip();
        let mut jobs: Vec<_> = heads.chunks_exact_mut(tiles).zip(keys.into_iter().chain(values)).collect();
        pass.cpu.pool.each(&mut jobs, |head, (out, place)| {
            self.multiply_head(pass, queries + head, acts, out);
            pass.place(out, place, (self.rule, &self.head_norms));
        });
    }

    /// As [`Attention::forward`], for rows that see what `sight` says.
    pub(super) fn forward_block(
        &self,
        pass: Pass<'_>,
        (mut cache, reader): (LayerCache<'_>, &Matrix),
        sight: Sight,
        scratch: &mut Scratch,
    ) {
        self.project(pass, &mut cache, scratch);
        let (shape, m, cache) = (pass.shape, pass.m, &cache);
        let answers = pass.answers(&mut scratch.attended, &mut scratch.wide, reader.operand());
        let of_row = |row: usize| {
            let (end, window) = seen(&pass, sight, row);
            (end, Rule { window, ..self.rule })
        };
        let before = (0..m).map(of_row).map(|(end, rule)| rule.first_segment(end)).min().unwrap_or(0);
        let segments = (pass.base + m).div_ceil(SEGMENT) - before;
        let group = shape.heads / shape.kv_heads;
        let partial = group * (shape.head_dim + PARTIAL_EXTRA);
        scratch.partials.resize(shape.kv_heads * m * segments * partial, 0.0);
        let group_tiles = group * shape.head_dim / LANES * m;
        let heads = &scratch.heads;
        let attend_segment = |item: usize, out: &mut [f32]| {
            let (head, first, segment) = (item / segments / m, item / segments % m, item % segments);
            let (end, rule) = of_row(first);
            let alone = Pass { base: end - 1, m: 1, ..pass };
            if let Some(stretch) = alone.stretch((cache, rule), head, 0..1, before + segment) {
                let tiles = &heads[head * group_tiles..(head + 1) * group_tiles];
                attend(pass.cpu.isa, Queries { tiles, m, first, rows: 1 }, stretch, out);
            }
        };
        let (mut columns, each) = pass.columns(answers, m, |_| 1);
        pass.cpu.pool.chunks_then(
            (&mut scratch.partials, partial),
            (&mut columns, each),
            attend_segment,
            |own, numbers, columns| {
                let (end, rule) = of_row(own % m);
                let partials = Partials { numbers, stride: partial, before, gates: None };
                pass.join(rule, partials, end, (&mut *columns, 0));
            },
        );
        pass.gather_answers(&mut scratch.attended, &mut scratch.wide);
    }
}
