//! One transformer block of the Llama kind, over at most [`PROMPT_ROWS`](draftscope_kernels::PROMPT_ROWS) rows.
//!
//! Five regions of parallel work: q|k|v with rotation and cache; attention with joining; output projection with the
//! residual; gate and up with SiLU; down with the residual. The thread that computes columns of the residual stream
//! also norms them, as far as that is possible without the other columns. Rows are stored as tiles `[d / 16][m]`.
//! Invariant: nothing depends on which thread does an item.

use super::{
    cache::{AngleTable, LayerCache, Slabs},
    gate_up::GateUp,
    matrix::{Cpu, Matrix},
    tree::{Tree, attend_tree},
};
use crate::model::nn::TransformerConfig;
use draftscope_kernels::{
    Acts, BLOCK, Column, Join, LANES, MAX_ROWS, Norm, NormHead, NormPart, Onto, Operand, PARTIAL_EXTRA, Queries,
    Rotate, SEGMENT, SiluMul, StoreKeys, StoreValues, Stretch, attend, attend_prompt, divisors, rows_at_once,
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

/// Fewest items of attention per thread.
const ITEMS_A_THREAD: usize = 3;

/// A norm's weights by lanes.
pub(in crate::model) type NormWeight = Vec<[f32; LANES]>;

/// Weights of one block; copies share the matrices.
#[derive(Clone, Debug)]
pub(in crate::model) struct Layer {
    pub(in crate::model) attn_norm: NormWeight,
    pub(in crate::model) qkv: Matrix, // [(heads + 2 kv_heads) head_dim, d]
    /// Norms of queries and keys, head by head, before rotation.
    pub(in crate::model) head_norms: Option<[NormWeight; 2]>,
    pub(in crate::model) out: Matrix, // [d, heads head_dim]
    pub(in crate::model) ffn_norm: NormWeight,
    pub(in crate::model) gate_up: GateUp, // [2 d_ff, d]
    pub(in crate::model) down: Matrix,    // [d, d_ff]
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

/// The rows of a pass.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct Pass<'a> {
    pub(in crate::model) cpu: &'a Cpu,
    pub(in crate::model) shape: &'a BlockShape,
    pub(in crate::model) angles: &'a AngleTable,
    /// First position.
    pub(in crate::model) base: usize,
    /// Rotary position of the first row: `base`, except for modules with other positions.
    pub(in crate::model) at: usize,
    pub(in crate::model) m: usize,
    /// `None` if every row continues the one before it.
    pub(in crate::model) tree: Option<&'a Tree>,
    pub(in crate::model) next: Next<'a>,
}

/// Where the outputs of a head go.
enum HeadOut<'a> {
    Query,
    Key(Slabs<'a>),
    Value(Slabs<'a>),
}

impl Layer {
    /// Bytes in memory.
    pub(in crate::model) fn bytes(&self) -> usize {
        let matrices = [&self.qkv, &self.out, &self.down];
        let norms = [&self.attn_norm, &self.ffn_norm].into_iter().chain(self.head_norms.iter().flatten());
        matrices.iter().map(|matrix| matrix.bytes()).sum::<usize>()
            + self.gate_up.bytes()
            + norms.map(|norm| size_of_val(norm.as_slice())).sum::<usize>()
    }

    /// Adds this to the weights of its norms.
    pub(in crate::model) fn shift_norms(&mut self, by: f32) {
        let norms = [&mut self.attn_norm, &mut self.ffn_norm].into_iter().chain(self.head_norms.iter_mut().flatten());
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
        let Scratch { x, acts, attended, squares, .. } = scratch;
        let norm = (&self.ffn_norm, self.gate_up.operand());
        let finite = pass.add_product_normed((&self.out, attended), (x, squares), norm, acts);
        self.feed_forward(pass, scratch);
        pass.cpu.pool.soon(pass.next.matrix().map_or(&[], Matrix::first_panel));
        let Scratch { x, acts, inner, squares, .. } = scratch;
        let Next::Block(next) = pass.next else {
            pass.product(&self.down, inner, Onto::Present, x);
            return finite;
        };
        let norm = (&next.attn_norm, next.qkv.operand());
        finite & pass.add_product_normed((&self.down, inner), (x, squares), norm, acts)
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
            pass.place(out, place, self.head_norms.as_ref());
        });
    }

    /// Attention outputs, ready for the output projection, to `scratch.attended`.
    fn attend(&self, pass: Pass<'_>, cache: &mut LayerCache<'_>, scratch: &mut Scratch) {
        let (shape, m) = (pass.shape, pass.m);
        scratch.attended.shape(m, shape.heads * shape.head_dim, self.out.operand());
        let segments = (pass.base + m).div_ceil(SEGMENT);
        let group = shape.heads / shape.kv_heads;
        let partial = group * (shape.head_dim + PARTIAL_EXTRA);
        if let Some(tree) = pass.tree {
            scratch.partials.resize(shape.kv_heads * m * segments * partial, 0.0);
            return attend_tree(pass, tree, cache, (&scratch.heads, &mut scratch.partials, &mut scratch.attended));
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
            if let Some(stretch) = pass.stretch(cache, head, first + rows - 1, segment) {
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
                    pass.join((&partials[row * partial..], stride), seen, (&mut *columns, row));
                }
            },
        );
    }

    /// `silu(gate) · up`, ready for the down projection, to `scratch.inner`.
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
            SiluMul { gate, up, out: column }.run_on(pass.cpu.isa);
        });
    }
}

impl Pass<'_> {
    /// Normed rows, ready for matrices; returns whether all were finite.
    pub(in crate::model) fn norm(
        &self,
        x: &[[f32; LANES]],
        weight: &[[f32; LANES]],
        operand: Operand,
        out: &mut Acts,
    ) -> bool {
        out.shape(self.m, weight.len() * LANES, operand);
        let (eps, kept) = (self.shape.eps, &mut [][..]);
        Norm { x, weight, eps, out, kept }.run_on(self.cpu.isa)
    }

    /// `x += matrix · acts`, and `out` the normed rows; returns whether all were finite.
    fn add_product_normed(
        &self,
        (matrix, acts): (&Matrix, &Acts),
        (x, squares): (&mut [[f32; LANES]], &mut Vec<f32>),
        (weight, operand): (&NormWeight, Operand),
        out: &mut Acts,
    ) -> bool {
        const TILES: usize = BLOCK / LANES;
        out.shape(self.m, weight.len() * LANES, operand);
        squares.resize(weight.len() / TILES * self.m, 0.0);
        let parts = squares.chunks_exact_mut(self.m).zip(out.columns()).zip(weight.chunks_exact(TILES));
        let mut parts: Vec<_> = parts.collect();
        self.cpu.pool.chunks_then(
            (x, self.m),
            (&mut parts, 1),
            |tile, x| matrix.multiply(self.cpu, tile, acts, Onto::Present, x),
            |_, x, part| {
                for ((squares, out), weight) in part {
                    NormPart { x, weight, out, squares }.run_on(self.cpu.isa);
                }
            },
        );
        let (inverses, finite) = divisors(squares, self.m, self.shape.eps);
        out.set_factors(inverses);
        finite
    }

    /// `x (+)= matrix · acts`, `x` being `[rows / 16][m]`.
    pub(in crate::model) fn product(&self, matrix: &Matrix, acts: &Acts, onto: Onto, x: &mut [[f32; LANES]]) {
        let grain = self.cpu.grain(matrix.tiles());
        self.cpu.pool.chunks(x, grain * self.m, |item, x| {
            for (tile, x) in x.chunks_exact_mut(self.m).enumerate() {
                matrix.multiply(self.cpu, item * grain + tile, acts, onto, x);
            }
        });
    }

    /// Finishes a head's outputs: queries stay, keys and values go to the cache.
    fn place(&self, tiles: &mut [[f32; LANES]], out: &mut HeadOut<'_>, norms: Option<&[NormWeight; 2]>) {
        let (m, isa) = (self.m, self.cpu.isa);
        let angles = self.tree.map_or_else(|| self.angles.at(self.at, m), Tree::angles);
        match out {
            HeadOut::Query => {
                self.norm_head(tiles, m, norms.map(|norms| &norms[0]));
                let scale = 1.0 / (self.shape.head_dim as f32).sqrt();
                Rotate { tiles, m, angles, scale }.run_on(isa);
            }
            HeadOut::Key(Slabs { start, slabs }) => {
                self.norm_head(tiles, m, norms.map(|norms| &norms[1]));
                Rotate { tiles: &mut *tiles, m, angles, scale: 1.0 }.run_on(isa);
                StoreKeys { tiles, m, position: self.base - *start, slabs }.run_on(isa);
            }
            HeadOut::Value(Slabs { start, slabs }) => {
                StoreValues { tiles, m, position: self.base - *start, slabs }.run_on(isa);
            }
        }
    }

    /// Norms the rows of one head in place, if the block has such a norm.
    pub(in crate::model) fn norm_head(&self, tiles: &mut [[f32; LANES]], m: usize, weight: Option<&NormWeight>) {
        if let Some(weight) = weight {
            NormHead { tiles, m, weight, eps: self.shape.eps }.run_on(self.cpu.isa);
        }
    }

    /// What a row sees of a segment; `None` if the segment is after the row.
    pub(in crate::model) fn stretch<'a>(
        &self,
        cache: &'a LayerCache<'_>,
        head: usize,
        row: usize,
        segment: usize,
    ) -> Option<Stretch<'a>> {
        let seen = self.base + row + 1;
        let start = segment * SEGMENT;
        (start < seen).then(|| {
            let [keys, values] = cache.segment(head, segment);
            Stretch { keys, values, seen: seen - start, head_dim: self.shape.head_dim }
        })
    }

    /// Rows that go through a segment together: as many as fit into registers, or all rows of a prompt's pass, but few
    /// enough that every thread gets some items; `items` are those of one row.
    fn team_rows(&self, items: usize, heads: usize) -> usize {
        let wanted = ITEMS_A_THREAD * self.cpu.pool.threads();
        let most = if self.m > MAX_ROWS { self.m } else { rows_at_once(self.cpu.isa, heads) };
        let teams = self.m.div_ceil(most).max(wanted.div_ceil(items)).min(self.m);
        self.m.div_ceil(teams)
    }

    /// The columns that each team of each KV head fills, `[kv_heads][teams][columns of its query heads]`, and their
    /// number; `rows(team)` is the number of its rows.
    pub(in crate::model) fn columns<'a>(
        &self,
        out: &'a mut Acts,
        teams: usize,
        rows: impl Fn(usize) -> usize,
    ) -> (Vec<Column<'a>>, usize) {
        let each = self.shape.heads / self.shape.kv_heads * self.shape.head_dim / BLOCK;
        let mut all: Vec<_> = out.columns().collect();
        let mut cut = Vec::with_capacity(all.len() * teams);
        for columns in all.chunks_exact_mut(each) {
            for team in 0..teams {
                cut.extend(columns.iter_mut().map(|column| column.split_off_rows(rows(team))));
            }
        }
        (cut, each)
    }

    /// Joins the partials of a row and one KV head's query heads over all segments, `stride` numbers apart, into `row`
    /// of the columns; the row sees `seen` positions.
    pub(in crate::model) fn join(
        &self,
        (partials, stride): (&[f32], usize),
        seen: usize,
        (columns, row): (&mut [Column<'_>], usize),
    ) {
        let head_dim = self.shape.head_dim;
        let heads = columns.chunks_exact_mut(head_dim / BLOCK);
        for (head, out) in heads.enumerate() {
            let partials = &partials[head * (head_dim + PARTIAL_EXTRA)..];
            let segments = seen.div_ceil(SEGMENT);
            Join { partials, stride, segments, head_dim, out, row }.run_on(self.cpu.isa);
        }
    }
}
