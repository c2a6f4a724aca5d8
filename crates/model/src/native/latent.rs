//! Attention over one short row of each position, which all heads share: the normed latent and a rotated key (DeepSeek-V2,
//! arXiv:2405.04434, section 2.1).
//!
//! A head's key is `W_k latent` beside that rotated key, its value `W_v latent`. Neither is computed: `W_k` is multiplied
//! into the query and `W_v` into the answer. Invariant: a row's bits do not depend on the rows beside it or on threads.

use std::sync::Arc;

use super::{
    heads::{HeadMatrices, HeadMemory},
    latent_attend::{Attend, Partials},
    layer::{NormWeight, Scratch},
    matrix::Matrix,
    pass::Pass,
};
use crate::nn::PairOrder;
use draftscope_kernels::{Acts, LANES, Load, Norm, NormHead, Onto, Operand, ScoreRule};

/// Sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LatentSizes {
    pub(crate) heads: usize,
    /// Width of the latent.
    pub(crate) rank: usize,
    /// Values of a head's query that are not rotated, then those that are.
    pub(crate) plain: usize,
    pub(crate) rotated: usize,
    /// Width of a head's value.
    pub(crate) value: usize,
}

impl LatentSizes {
    /// Numbers of a cached row.
    pub(crate) fn row(self) -> usize {
        self.rank + self.rotated
    }
}

/// How queries are made.
#[derive(Clone, Debug)]
pub(crate) enum Queries {
    /// `[heads · (plain + rotated), d]`
    Direct(Matrix),
    /// `[rank of queries, d]`, a norm, `[heads · (plain + rotated), rank of queries]`.
    Squeezed(Matrix, NormWeight, Matrix),
}

/// Weights before the output projection; copies share the matrices.
#[derive(Clone, Debug)]
pub(crate) struct Latent {
    pub(super) sizes: LatentSizes,
    pub(super) queries: Queries,
    pub(super) kv: Matrix, // [rank + rotated, d]
    pub(super) kv_norm: NormWeight,
    /// Epsilon of its norms.
    pub(super) eps: f32,
    pub(super) to_keys: Arc<HeadMatrices>,   // [heads, rank, plain]
    pub(super) to_values: Arc<HeadMatrices>, // [heads, value, rank]
    /// Index of the table of angles, and the order of its pairs.
    pub(super) rotation: (usize, PairOrder),
    pub(super) rule: ScoreRule,
}

/// Memory of a pass, reused by the next.
#[derive(Debug, Default)]
pub(crate) struct LatentMemory {
    tiles: Vec<[f32; LANES]>,
    acts: Acts,
    heads: HeadMemory,
    queries: Vec<f32>, // [m][heads][plain + rotated]
    plain: Vec<f32>,   // [heads][m][plain]
    folded: Vec<f32>,  // [heads][m][rank], queries and then answers
    joined: Vec<f32>,  // [m][heads][rank + rotated]
    kept: Vec<f32>,    // [m][rank + rotated]
    values: Vec<f32>,  // [heads][m][value]
    rows: Vec<[f32; LANES]>,
    partials: Partials,
}

impl Latent {
    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        let (matrices, norm) = match &self.queries {
            Queries::Direct(q) => (q.bytes(), 0),
            Queries::Squeezed(down, norm, up) => (down.bytes() + up.bytes(), size_of_val(norm.as_slice())),
        };
        let folded = self.to_keys.bytes() + self.to_values.bytes();
        matrices + norm + self.kv.bytes() + size_of_val(self.kv_norm.as_slice()) + folded
    }

    /// Its norms.
    pub(super) fn norms_mut(&mut self) -> impl Iterator<Item = &mut NormWeight> {
        let of_queries = match &mut self.queries {
            Queries::Direct(_) => None,
            Queries::Squeezed(_, norm, _) => Some(norm),
        };
        of_queries.into_iter().chain([&mut self.kv_norm])
    }

    /// Numbers of a cached row.
    pub(super) fn width(&self) -> usize {
        self.sizes.row()
    }

    /// The matrix that reads the stream first.
    pub(super) fn first_matrix(&self) -> &Matrix {
        match &self.queries {
            Queries::Direct(q) => q,
            Queries::Squeezed(down, ..) => down,
        }
    }

    /// The forms in which it reads rows.
    pub(super) fn operand(&self) -> Operand {
        self.first_matrix().operand().and(self.kv.operand())
    }

    /// Reads `scratch.acts`; leaves answers in `scratch.attended`, as `reader` reads them. `cache` has the rows of all
    /// positions, `[positions][rank + rotated]`.
    pub(super) fn forward(&self, pass: Pass<'_>, (cache, reader): (&mut [f32], &Matrix), scratch: &mut Scratch) {
        let LatentSizes { heads, value, .. } = self.sizes;
        let Scratch { acts, attended, latent: memory, .. } = scratch;
        self.make_queries(pass, acts, memory);
        self.make_rows(pass, acts, memory);
        self.join_queries(pass, memory);
        pass.cpu.pool.soon(reader.first_panel());
        self.attend(pass, cache, memory);
        let LatentMemory { folded, values, rows, heads: of_heads, .. } = memory;
        let m = pass.m;
        values.resize(heads * m * value, 0.0);
        self.to_values.pass((pass.cpu, of_heads), (folded, m), 0..m, values);
        rows.resize(heads * value / LANES * m, [0.0; LANES]);
        for (row, to) in rows.as_flattened_mut().chunks_exact_mut(heads * value).enumerate() {
            for (head, to) in to.chunks_exact_mut(value).enumerate() {
                to.copy_from_slice(&values[(head * m + row) * value..][..value]);
            }
        }
        attended.shape(m, heads * value, reader.operand());
        Load { rows, out: attended }.run_on(pass.cpu.isa);
    }

    /// Queries to `memory.queries`, not rotated.
    fn make_queries(&self, pass: Pass<'_>, acts: &Acts, memory: &mut LatentMemory) {
        let LatentSizes { heads, plain, rotated, .. } = self.sizes;
        let LatentMemory { tiles, acts: squeezed, queries, .. } = memory;
        match &self.queries {
            Queries::Direct(q) => product(pass, q, acts, tiles),
            Queries::Squeezed(down, weight, up) => {
                product(pass, down, acts, tiles);
                squeezed.shape(pass.m, up.k(), up.operand());
                Norm { x: tiles, weight, eps: self.eps, out: &mut *squeezed, kept: &mut [] }.run_on(pass.cpu.isa);
                product(pass, up, squeezed, tiles);
            }
        }
        to_rows(tiles, (pass.m, heads * (plain + rotated)), queries);
    }

    /// The rows to be cached to `memory.kept`.
    fn make_rows(&self, pass: Pass<'_>, acts: &Acts, memory: &mut LatentMemory) {
        let (m, rank) = (pass.m, self.sizes.rank);
        let LatentMemory { tiles, kept, .. } = memory;
        product(pass, &self.kv, acts, tiles);
        let latents = &mut tiles[..rank / LANES * m];
        NormHead { tiles: latents, m, weight: &self.kv_norm, eps: self.eps }.run_on(pass.cpu.isa);
        to_rows(tiles, (m, self.sizes.row()), kept);
        for (row, kept) in kept.chunks_exact_mut(self.sizes.row()).enumerate() {
            self.rotate(pass, row, &mut kept[rank..]);
        }
    }

    /// Queries as they meet cached rows, to `memory.joined`.
    fn join_queries(&self, pass: Pass<'_>, memory: &mut LatentMemory) {
        let LatentSizes { heads, rank, plain, rotated, .. } = self.sizes;
        let (m, width) = (pass.m, rank + rotated);
        let LatentMemory { queries, plain: plain_parts, folded, joined, heads: of_heads, .. } = memory;
        plain_parts.resize(heads * m * plain, 0.0);
        folded.resize(heads * m * rank, 0.0);
        joined.resize(m * heads * width, 0.0);
        for (at, query) in queries.chunks_exact(plain + rotated).enumerate() {
            let (row, head) = (at / heads, at % heads);
            plain_parts[(head * m + row) * plain..][..plain].copy_from_slice(&query[..plain]);
            let turned = &mut joined[at * width + rank..][..rotated];
            turned.copy_from_slice(&query[plain..]);
            self.rotate(pass, row, turned);
        }
        self.to_keys.pass((pass.cpu, of_heads), (plain_parts, m), 0..m, folded);
        for (at, joined) in joined.chunks_exact_mut(width).enumerate() {
            let (row, head) = (at / heads, at % heads);
            joined[..rank].copy_from_slice(&folded[(head * m + row) * rank..][..rank]);
        }
    }

    /// Rotates values by the angles of a row of the pass.
    fn rotate(&self, pass: Pass<'_>, row: usize, values: &mut [f32]) {
        let (table, pairs) = self.rotation;
        let angles = match pass.tree {
            None => pass.tables[table].at(pass.at, pass.m),
            Some(tree) => tree.angles(table),
        };
        let lanes = angles.cos.len() / pass.m;
        let of_row = |table: &[[f32; LANES]]| -> Vec<f32> { table[row * lanes..][..lanes].as_flattened().to_vec() };
        let (cos, sin, half) = (of_row(angles.cos), of_row(angles.sin), values.len() / 2);
        for pair in 0..half {
            let [a, b] = match pairs {
                PairOrder::Interleaved => [2 * pair, 2 * pair + 1],
                PairOrder::HalfSplit => [pair, pair + half],
            };
            let (x, y) = (values[a], values[b]);
            values[a] = x * cos[pair] - y * sin[pair];
            values[b] = x.mul_add(sin[pair], y * cos[pair]);
        }
    }

    /// Caches the rows of the pass, and attends over what each of them sees: answers to `memory.folded`.
    fn attend(&self, pass: Pass<'_>, cache: &mut [f32], memory: &mut LatentMemory) {
        let LatentSizes { heads, rank, .. } = self.sizes;
        let (m, base, width) = (pass.m, pass.base, self.sizes.row());
        let LatentMemory { joined, kept, folded, partials, .. } = memory;
        let attend = Attend { cpu: pass.cpu, heads, rank, width, rule: self.rule };
        let Some(tree) = pass.tree else {
            cache[base * width..][..m * width].copy_from_slice(kept);
            return attend.run((joined, base + 1), cache, partials, (folded, m));
        };
        let mut answer = vec![0.0; heads * rank];
        for (row, path) in tree.paths().iter().enumerate() {
            for (depth, ancestor) in path.iter().enumerate() {
                cache[(base + depth) * width..][..width].copy_from_slice(&kept[ancestor * width..][..width]);
            }
            let query = &joined[row * heads * width..][..heads * width];
            attend.run((query, base + path.len()), cache, partials, (&mut answer, 1));
            for (head, answer) in answer.chunks_exact(rank).enumerate() {
                folded[(head * m + row) * rank..][..rank].copy_from_slice(answer);
            }
        }
        cache[base * width..][..m * width].copy_from_slice(kept);
    }
}

/// `tiles = matrix · acts`, `[rows / 16][m]`.
fn product(pass: Pass<'_>, matrix: &Matrix, acts: &Acts, tiles: &mut Vec<[f32; LANES]>) {
    tiles.resize(matrix.tiles() * pass.m, [0.0; LANES]);
    pass.product(matrix, acts, Onto::Nothing, tiles);
}

/// `[width / 16][m]` to `[m][width]`.
fn to_rows(tiles: &[[f32; LANES]], (m, width): (usize, usize), out: &mut Vec<f32>) {
    out.resize(m * width, 0.0);
    for (row, out) in out.chunks_exact_mut(width).enumerate() {
        for (to, tile) in out.chunks_mut(LANES).zip(tiles[row..].iter().step_by(m)) {
            to.copy_from_slice(&tile[..to.len()]);
        }
    }
}
