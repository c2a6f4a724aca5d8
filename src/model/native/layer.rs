//! One transformer block with attention and a gated layer, over at most [`PROMPT_ROWS`](draftscope_kernels::PROMPT_ROWS) rows.
//!
//! Five regions of parallel work: q|k|v with rotation and cache; attention with joining; output projection with the
//! residual; gate and up with their activation; down with the residual. A norm after attention or after the gated layer
//! takes one region more, since it needs all columns. The thread that computes columns of the residual stream
//! also norms them, as far as that is possible without the other columns. Rows are stored as tiles `[d / 16][m]`.
//! Invariant: nothing depends on which thread does an item.

use super::{
    cache::LayerCache,
    gate_up::GateUp,
    matrix::Matrix,
    pass::{HeadOut, Partials, Pass, Stream},
    rule::Rule,
    tree::attend_tree,
};
use crate::model::nn::{Activation, TransformerConfig};
use draftscope_kernels::{
    Acts, GeluMul, LANES, MAX_ROWS, Onto, PARTIAL_EXTRA, Queries, SEGMENT, SiluMul, attend, attend_prompt,
};

/// Sizes of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::model) struct BlockShape {
    pub(in crate::model) d_model: usize,
    pub(in crate::model) heads: usize,
    pub(in crate::model) kv_heads: usize,
    pub(in crate::model) head_dim: usize,
    pub(in crate::model) d_ff: usize,
    pub(in crate::model) eps: f32,
}

impl BlockShape {
    /// Of a block of a model of these sizes.
    pub(in crate::model) fn of(c: &TransformerConfig) -> Self {
        let (d_model, heads, kv_heads, head_dim) = (c.d_model, c.heads, c.kv_heads, c.head_dim);
        Self { d_model, heads, kv_heads, head_dim, d_ff: c.ffn, eps: c.norm_eps }
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
    pub(in crate::model) rule: Rule,
    pub(in crate::model) out: Matrix, // [d, heads head_dim]
    pub(in crate::model) ffn_norm: NormWeight,
    pub(in crate::model) gate_up: GateUp, // [2 d_ff, d]
    pub(in crate::model) activation: Activation,
    pub(in crate::model) down: Matrix, // [d, d_ff]
    /// Norms of what attention and the gated layer give, before it is added.
    pub(in crate::model) after_norms: Option<[NormWeight; 2]>,
}

/// Memory of a pass, reused by the next.
#[derive(Debug, Default)]
pub(in crate::model) struct Scratch {
    /// The residual stream, `[d / 16][m]`.
    pub(in crate::model) x: Vec<[f32; LANES]>,
    pub(in crate::model) acts: Acts,
    pub(in crate::model) attended: Acts,
    inner: Acts,
    pub(in crate::model) heads: Vec<[f32; LANES]>, // [heads + 2 kv_heads][head_dim / 16][m]
    /// `[kv_heads][teams][segments][rows of a team][group][head_dim + PARTIAL_EXTRA]`
    pub(in crate::model) partials: Vec<f32>,
    gate_up: Vec<[f32; LANES]>, // [d_ff / 32][gate, up][2][m]
    squares: Vec<f32>,          // [d / 32][m]
    given: Vec<[f32; LANES]>,   // [d / 16][m], what a step gives, before its norm
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

impl Layer {
    /// Bytes in memory.
    pub(in crate::model) fn bytes(&self) -> usize {
        let matrices = [&self.qkv, &self.out, &self.down];
        let norms = [&self.attn_norm, &self.ffn_norm].into_iter().chain(self.head_norms.iter().flatten());
        let norms = norms.chain(self.after_norms.iter().flatten());
        matrices.iter().map(|matrix| matrix.bytes()).sum::<usize>()
            + self.gate_up.bytes()
            + norms.map(|norm| size_of_val(norm.as_slice())).sum::<usize>()
    }

    /// Adds this to the weights of its norms.
    pub(in crate::model) fn shift_norms(&mut self, by: f32) {
        let norms = [&mut self.attn_norm, &mut self.ffn_norm].into_iter().chain(self.head_norms.iter_mut().flatten());
        let norms = norms.chain(self.after_norms.iter_mut().flatten());
        norms.flatten().flatten().for_each(|weight| *weight += by);
    }

    /// Norms the rows in `scratch.x` for the first block of a pass; returns whether they were finite.
    pub(in crate::model) fn enter(&self, pass: Pass<'_>, scratch: &mut Scratch) -> bool {
        pass.norm(&scratch.x, &self.attn_norm, self.qkv.operand(), &mut scratch.acts)
    }

    /// Runs the rows in `scratch.x` in place; attention reads `scratch.acts`, where the input of the next block is
    /// left, if a block follows. Returns whether the rows were finite.
    pub(in crate::model) fn forward(&self, pass: Pass<'_>, mut cache: LayerCache<'_>, scratch: &mut Scratch) -> bool {
        self.project(pass, &mut cache, scratch);
        pass.cpu.pool.soon(self.out.first_panel());
        self.attend(pass, &mut cache, scratch);
        pass.cpu.pool.soon(self.gate_up.first_panel());
        self.finish(pass, scratch)
    }

    /// The part after attention; returns whether the rows were finite.
    pub(in crate::model) fn finish(&self, pass: Pass<'_>, scratch: &mut Scratch) -> bool {
        let after = self.after_norms.as_ref().map_or([None; 2], |norms| norms.each_ref().map(Some));
        let Scratch { x, acts, attended, squares, given, .. } = scratch;
        let next = Some((&self.ffn_norm, self.gate_up.operand()));
        let stream = Stream { x, given, squares, out: acts };
        let finite = pass.add((&self.out, attended), (after[0], next), stream);
        self.feed_forward(pass, scratch);
        pass.cpu.pool.soon(pass.next.matrix().map_or(&[], Matrix::first_panel));
        let Scratch { x, acts, inner, squares, given, .. } = scratch;
        let next = match pass.next {
            Next::Block(next) => Some((&next.attn_norm, next.qkv.operand())),
            Next::Head(_) | Next::Else => None,
        };
        finite & pass.add((&self.down, inner), (after[1], next), Stream { x, given, squares, out: acts })
    }

    /// Queries to `scratch.heads`, rotated and scaled; keys and values to the cache.
    fn project(&self, pass: Pass<'_>, cache: &mut LayerCache<'_>, scratch: &mut Scratch) {
        let shape = pass.shape;
        let tiles = shape.head_dim / LANES;
        let count = shape.heads + 2 * shape.kv_heads;
        scratch.heads.resize(count * tiles * pass.m, [0.0; LANES]);
        let slabs = cache.slabs(pass.base..pass.base + pass.m);
        let (keys, values): (Vec<_>, Vec<_>) =
            slabs.into_iter().map(|[k, v]| (HeadOut::Key(k), HeadOut::Value(v))).unzip();
        let places = (0..shape.heads).map(|_| HeadOut::Query).chain(keys).chain(values);
        let mut jobs: Vec<_> = scratch.heads.chunks_exact_mut(tiles * pass.m).zip(places).collect();
        let acts = &scratch.acts;
        pass.cpu.pool.each(&mut jobs, |head, (out, place)| {
            for (tile, out) in out.chunks_exact_mut(pass.m).enumerate() {
                self.qkv.multiply(pass.cpu, head * tiles + tile, acts, Onto::Nothing, out);
            }
            pass.place(out, place, (self.rule, self.head_norms.as_ref()));
        });
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

    /// `activation(gate) · up`, ready for the down projection, to `scratch.inner`.
    fn feed_forward(&self, pass: Pass<'_>, scratch: &mut Scratch) {
        let m = pass.m;
        scratch.inner.shape(m, pass.shape.d_ff, self.down.operand());
        scratch.gate_up.resize(pass.shape.d_ff / LANES * 2 * m, [0.0; LANES]);
        let columns = scratch.inner.columns();
        let mut jobs: Vec<_> = columns.zip(scratch.gate_up.chunks_exact_mut(4 * m)).collect();
        let acts = &scratch.acts;
        pass.cpu.pool.each(&mut jobs, |at, (column, out)| {
            self.gate_up.multiply(pass.cpu, at, acts, out);
            let (gate, up) = out.split_at(2 * m);
            match self.activation {
                Activation::Silu => SiluMul { gate, up, out: column }.run_on(pass.cpu.isa),
                Activation::Gelu => GeluMul { gate, up, out: column }.run_on(pass.cpu.isa),
            }
        });
    }
}
