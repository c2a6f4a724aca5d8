//! One transformer block with attention and a gated layer, over at most [`PROMPT_ROWS`](draftscope_kernels::PROMPT_ROWS) rows.
//!
//! Five regions of parallel work: q|k|v with rotation and cache; attention with joining; output projection with the
//! residual; gate and up with their activation; down with the residual. A norm after attention or after the gated layer
//! takes one region more, since it needs all columns. The thread that computes columns of the residual stream
//! also norms them, as far as that is possible without the other columns. Rows are stored as tiles `[d / 16][m]`.
//! Invariant: nothing depends on which thread does an item.

use super::{
    cache::LayerCache,
    feed::{Feed, FeedMemory},
    matrix::Matrix,
    pass::{HeadOut, Partials, Pass, Stream},
    rule::Rule,
    tree::attend_tree,
};
use crate::model::nn::TransformerConfig;
use draftscope_kernels::{
    Acts, LANES, MAX_ROWS, Onto, Operand, PARTIAL_EXTRA, PROMPT_ROWS, Queries, SEGMENT, attend, attend_prompt,
};

/// Sizes of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::model) struct BlockShape {
    pub(in crate::model) d_model: usize,
    pub(in crate::model) heads: usize,
    pub(in crate::model) kv_heads: usize,
    pub(in crate::model) head_dim: usize,
    pub(in crate::model) eps: f32,
}

impl BlockShape {
    /// Of a block of a model of these sizes.
    pub(in crate::model) fn of(c: &TransformerConfig) -> Self {
        let (d_model, heads, kv_heads, head_dim) = (c.d_model, c.heads, c.kv_heads, c.head_dim);
        Self { d_model, heads, kv_heads, head_dim, eps: c.norm_eps }
    }

    /// Bytes of what attention keeps of one row that sees so many positions, until its segments are joined.
    pub(in crate::model) fn partial_bytes(&self, seen: usize) -> usize {
        seen.div_ceil(SEGMENT) * self.heads * (self.head_dim + PARTIAL_EXTRA) * size_of::<f32>()
    }
}

/// A norm's weights by lanes.
pub(in crate::model) type NormWeight = Vec<[f32; LANES]>;

/// Weights of one block; copies share the matrices.
#[derive(Clone, Debug)]
pub(in crate::model) struct Layer {
    pub(in crate::model) attn_norm: NormWeight,
    pub(in crate::model) qkv: Matrix, // [(heads + 2 kv_heads) head_dim, d]
    /// Norms of queries and keys, head by head, before rotation.
    pub(in crate::model) head_norms: Option<[NormWeight; 2]>,
    /// Norms of queries and keys over all heads, before rotation.
    pub(in crate::model) width_norms: Option<[NormWeight; 2]>,
    pub(in crate::model) rule: Rule,
    pub(in crate::model) out: Matrix, // [d, heads head_dim]
    pub(in crate::model) ffn_norm: NormWeight,
    pub(in crate::model) feed: Feed,
    /// Norms of what attention and the feed-forward part give, before it is added.
    pub(in crate::model) after_norms: Option<[NormWeight; 2]>,
    /// Whether attention and the feed-forward part read the stream as it is; the weights of their norms are 1 then.
    pub(in crate::model) raw: [bool; 2],
    /// Factors of what they add, where no norm comes after them.
    pub(in crate::model) scales: [f32; 2],
}

/// What a step reads of the stream.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct Reader<'a> {
    /// Weights of its norm.
    pub(super) weight: &'a NormWeight,
    /// Whether it reads the stream as it is, times the weights.
    pub(super) raw: bool,
    /// The forms that its matrix reads.
    pub(super) operand: Operand,
}

/// Memory of a pass, reused by the next.
#[derive(Debug, Default)]
pub(in crate::model) struct Scratch {
    /// The residual stream, `[d / 16][m]`.
    pub(in crate::model) x: Vec<[f32; LANES]>,
    pub(in crate::model) acts: Acts,
    pub(in crate::model) attended: Acts,
    feed: FeedMemory,
    pub(in crate::model) heads: Vec<[f32; LANES]>, // [heads + 2 kv_heads][head_dim / 16][m]
    /// `[kv_heads][teams][segments][rows of a team][group][head_dim + PARTIAL_EXTRA]`
    pub(in crate::model) partials: Vec<f32>,
    pub(super) squares: Vec<f32>, // [d / 32][m]
    given: Vec<[f32; LANES]>,     // [d / 16][m], what a step gives, before its norm
}

/// What follows a block.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) enum Next<'a> {
    /// Something else.
    Else,
    /// A norm, and then this matrix.
    Head(&'a Matrix),
    Block(&'a Layer),
}

impl Next<'_> {
    fn matrix(&self) -> Option<&Matrix> {
        match self {
            Self::Else => None,
            Self::Head(matrix) => Some(matrix),
            Self::Block(layer) => Some(&layer.qkv),
        }
    }
}

/// Makes products with these rows carry a factor.
fn scale(acts: &mut Acts, factor: f32) {
    if factor != 1.0 {
        acts.set_factors([factor; PROMPT_ROWS]);
    }
}

impl Layer {
    /// Bytes in memory.
    pub(in crate::model) fn bytes(&self) -> usize {
        let matrices = [&self.qkv, &self.out];
        let norms = [&self.attn_norm, &self.ffn_norm].into_iter().chain(self.head_norms.iter().flatten());
        let norms = norms.chain(self.after_norms.iter().flatten()).chain(self.width_norms.iter().flatten());
        matrices.iter().map(|matrix| matrix.bytes()).sum::<usize>()
            + self.feed.bytes()
            + norms.map(|norm| size_of_val(norm.as_slice())).sum::<usize>()
    }

    /// Adds this to the weights of its norms.
    pub(in crate::model) fn shift_norms(&mut self, by: f32) {
        let norms = [&mut self.attn_norm, &mut self.ffn_norm].into_iter().chain(self.head_norms.iter_mut().flatten());
        let norms = norms.chain(self.after_norms.iter_mut().flatten()).chain(self.width_norms.iter_mut().flatten());
        norms.chain(self.feed.norms_mut()).flatten().flatten().for_each(|weight| *weight += by);
    }

    /// Norms the rows in `scratch.x` for the first block of a pass; returns whether they were finite.
    pub(in crate::model) fn enter(&self, pass: Pass<'_>, scratch: &mut Scratch) -> bool {
        pass.read(&scratch.x, self.reader(), &mut scratch.acts)
    }

    /// What attention reads.
    fn reader(&self) -> Reader<'_> {
        Reader { weight: &self.attn_norm, raw: self.raw[0], operand: self.qkv.operand() }
    }

    /// Runs the rows in `scratch.x` in place; attention reads `scratch.acts`, where the input of the next block is
    /// left, if a block follows. Returns whether the rows were finite.
    pub(in crate::model) fn forward(&self, pass: Pass<'_>, mut cache: LayerCache<'_>, scratch: &mut Scratch) -> bool {
        self.project(pass, &mut cache, scratch);
        pass.cpu.pool.soon(self.out.first_panel());
        self.attend(pass, &mut cache, scratch);
        pass.cpu.pool.soon(self.feed.first_panel());
        self.finish(pass, scratch)
    }

    /// The part after attention; returns whether the rows were finite.
    pub(in crate::model) fn finish(&self, pass: Pass<'_>, scratch: &mut Scratch) -> bool {
        let after = self.after_norms.as_ref().map_or([None; 2], |norms| norms.each_ref().map(Some));
        let Scratch { x, acts, attended, squares, given, .. } = scratch;
        scale(attended, self.scales[0]);
        let next = Some(Reader { weight: &self.ffn_norm, raw: self.raw[1], operand: self.feed.operand() });
        let stream = Stream { x, given, squares, out: acts };
        let finite = pass.add((&self.out, attended), (after[0], next), stream);
        finite & self.feed_forward(pass, after[1], scratch)
    }

    /// The feed-forward part; returns whether the rows were finite.
    fn feed_forward(&self, pass: Pass<'_>, after: Option<&NormWeight>, scratch: &mut Scratch) -> bool {
        let Scratch { x, acts, feed: memory, squares, given, .. } = scratch;
        let next = match pass.next {
            Next::Block(next) => Some(next.reader()),
            Next::Head(_) | Next::Else => None,
        };
        let soon = || pass.cpu.pool.soon(pass.next.matrix().map_or(&[], Matrix::first_panel));
        match &self.feed {
            Feed::Dense(gated) => {
                gated.inner(pass, acts, memory);
                soon();
                scale(&mut memory.inner, self.scales[1]);
                pass.add((&gated.down, &memory.inner), (after, next), Stream { x, given, squares, out: acts })
            }
            Feed::Experts(experts) => {
                experts.forward(pass, (x, acts), memory, (given, squares));
                soon();
                pass.add_given((after, next), self.scales[1], Stream { x, given, squares, out: acts })
            }
        }
    }

    /// Queries to `scratch.heads`, rotated and scaled; keys and values to the cache.
    fn project(&self, pass: Pass<'_>, cache: &mut LayerCache<'_>, scratch: &mut Scratch) {
        let shape = pass.shape;
        let tiles = shape.head_dim / LANES;
        let count = shape.heads + 2 * shape.kv_heads;
        scratch.heads.resize(count * tiles * pass.m, [0.0; LANES]);
        let acts = &scratch.acts;
        let is_projected = self.project_normed(pass, acts, (&mut scratch.heads, &mut scratch.squares));
        let slabs = cache.slabs(pass.base..pass.base + pass.m);
        let (keys, values): (Vec<_>, Vec<_>) =
            slabs.into_iter().map(|[k, v]| (HeadOut::Key(k), HeadOut::Value(v))).unzip();
        let places = (0..shape.heads).map(|_| HeadOut::Query).chain(keys).chain(values);
        let mut jobs: Vec<_> = scratch.heads.chunks_exact_mut(tiles * pass.m).zip(places).collect();
        pass.cpu.pool.each(&mut jobs, |head, (out, place)| {
            if !is_projected {
                self.multiply_head(pass, head, acts, out);
            }
            pass.place(out, place, (self.rule, self.head_norms.as_ref()));
        });
    }

    /// Outputs of a head, `[head_dim / 16][m]`.
    pub(super) fn multiply_head(&self, pass: Pass<'_>, head: usize, acts: &Acts, out: &mut [[f32; LANES]]) {
        let first = head * pass.shape.head_dim / LANES;
        for (tile, out) in out.chunks_exact_mut(pass.m).enumerate() {
            self.qkv.multiply(pass.cpu, first + tile, acts, Onto::Nothing, out);
        }
    }

    /// Outputs of all heads if queries and keys are normed over all of them, which is done; else returns false.
    pub(super) fn project_normed(
        &self,
        pass: Pass<'_>,
        acts: &Acts,
        (heads, squares): (&mut [[f32; LANES]], &mut Vec<f32>),
    ) -> bool {
        let Some([of_queries, of_keys]) = &self.width_norms else { return false };
        let tiles = pass.shape.head_dim / LANES * pass.m;
        pass.cpu.pool.chunks(heads, tiles, |head, out| self.multiply_head(pass, head, acts, out));
        let (queries, rest) = heads.split_at_mut(pass.shape.heads * tiles);
        pass.norm_width(queries, of_queries, squares);
        pass.norm_width(&mut rest[..pass.shape.kv_heads * tiles], of_keys, squares);
        true
    }

    /// Attention outputs, ready for the output projection, to `scratch.attended`.
    fn attend(&self, pass: Pass<'_>, cache: &mut LayerCache<'_>, scratch: &mut Scratch) {
        let (shape, m) = (pass.shape, pass.m);
        scratch.attended.shape(m, shape.heads * shape.head_dim, self.out.operand());
        let rule = self.rule;
        // segments before the first row's window are seen by nobody
        let before = rule.first_segment(pass.base + 1);
        let segments = (pass.base + m).div_ceil(SEGMENT) - before;
        let group = shape.heads / shape.kv_heads;
        let partial = group * (shape.head_dim + PARTIAL_EXTRA);
        if let Some(tree) = pass.tree {
            scratch.partials.resize(shape.kv_heads * m * segments * partial, 0.0);
            let scratch = (&scratch.heads[..], &mut scratch.partials[..], &mut scratch.attended);
            return attend_tree((pass, rule), tree, cache, scratch);
        }
        let cache = &*cache;
        let rows = pass.team_rows(shape.kv_heads * segments, group);
        let teams = m.div_ceil(rows);
        let here = |team: usize| rows.min(m - team * rows);
        scratch.partials.resize(shape.kv_heads * teams * segments * rows * partial, 0.0);
        let group_tiles = group * shape.head_dim / LANES * m;
        let heads = &scratch.heads;
        let attend = |item: usize, out: &mut [f32]| {
            let (head, team, segment) = (item / segments / teams, item / segments % teams, item % segments);
            let (first, rows) = (team * rows, here(team));
            if let Some(stretch) = pass.stretch((cache, rule), head, first..first + rows, before + segment) {
                let tiles = &heads[head * group_tiles..(head + 1) * group_tiles];
                let queries = Queries { tiles, m, first, rows };
                let attend = if m > MAX_ROWS { attend_prompt } else { attend };
                attend(pass.cpu.isa, queries, stretch, &mut out[..rows * partial]);
            }
        };
        let (mut columns, each) = pass.columns(&mut scratch.attended, teams, here);
        pass.cpu.pool.chunks_then(
            (&mut scratch.partials, rows * partial),
            (&mut columns, each),
            attend,
            |own, partials, columns| {
                let team = own % teams;
                let stride = partials.len() / segments;
                for row in 0..here(team) {
                    let seen = pass.base + team * rows + row + 1;
                    let partials = Partials { numbers: &partials[row * partial..], stride, before };
                    pass.join(rule, partials, seen, (&mut *columns, row));
                }
            },
        );
    }
}
