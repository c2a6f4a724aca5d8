//! Attention with keys and values of each position, over at most
//! [`PROMPT_ROWS`](draftscope_kernels::PROMPT_ROWS) rows: q|k|v with rotation and cache, then attention with joining. Gates,
//! if there are any, are rows of the same product.
//!
//! Invariant: nothing depends on which thread does an item.

use super::{
    cache::LayerCache,
    layer::{BlockShape, NormWeight, Scratch},
    matrix::Matrix,
    pass::{Gates, HeadOut, Partials, Pass},
    rule::Rule,
    tree::attend_tree,
};
use draftscope_kernels::{
    Acts, LANES, MAX_ROWS, Onto, Operand, PARTIAL_EXTRA, Queries, SEGMENT, attend, attend_prompt,
};

/// What rows add to the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adds {
    /// Nothing: the keys and values of another layer are read.
    Nothing,
    /// Keys, which before their norm and rotation are the values too.
    Keys,
    /// Keys and values.
    KeysAndValues,
}

/// Norms of queries, keys and values, head by head.
pub(crate) type HeadNorms = [Option<NormWeight>; 3];

/// Weights before the output projection; copies share the matrix.
#[derive(Clone, Debug)]
pub(crate) struct Attention {
    /// Its heads.
    pub(crate) shape: BlockShape,
    /// What rows add to the cache.
    pub(crate) adds: Adds,
    /// The layer of the cache that it reads.
    pub(crate) cache: usize,
    /// `[(heads + 2 kv_heads) head_dim, d]`, and as many rows of gates as of queries; without keys and values, or values, that
    /// it does not make.
    pub(crate) qkv: Matrix,
    /// Norms of queries, keys and values, head by head, before rotation.
    pub(crate) head_norms: HeadNorms,
    /// Norms of queries and keys over all heads, before rotation.
    pub(crate) width_norms: Option<[NormWeight; 2]>,
    pub(crate) rule: Rule,
    /// Whether answers are multiplied by the sigmoid of gates.
    pub(crate) gated: bool,
}

impl Attention {
    /// Its norms that have stored weights.
    pub(super) fn norms_mut(&mut self) -> impl Iterator<Item = &mut NormWeight> {
        let [queries, keys, _] = &mut self.head_norms;
        queries.iter_mut().chain(keys).chain(self.width_norms.iter_mut().flatten())
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        // the norm of values has no weights
        let norms = self.head_norms[..2].iter().flatten().chain(self.width_norms.iter().flatten());
        self.qkv.bytes() + norms.map(|norm| size_of_val(norm.as_slice())).sum::<usize>()
    }

    /// Heads of queries, keys, values and gates that are computed.
    pub(super) fn count(&self) -> usize {
        self.shape.heads * if self.gated { 2 } else { 1 } + self.added()
    }

    /// Heads of keys and values that are computed.
    fn added(&self) -> usize {
        if self.adds == Adds::Nothing { 0 } else { 2 * self.shape.kv_heads }
    }

    /// The gates of a row and one KV head's query heads, among the outputs of all heads.
    pub(super) fn gates<'a>(
        &self,
        pass: Pass<'_>,
        heads: &'a [[f32; LANES]],
        (kv_head, row): (usize, usize),
    ) -> Option<Gates<'a>> {
        let BlockShape { heads: queries, kv_heads, head_dim, .. } = self.shape;
        let first = queries + self.added() + kv_head * (queries / kv_heads);
        self.gated.then(|| Gates { tiles: &heads[first * head_dim / LANES * pass.m + row..], step: pass.m })
    }

    /// Reads `scratch.acts`; leaves answers in `scratch.attended`, as a matrix of these forms reads them.
    pub(super) fn forward(
        &self,
        pass: Pass<'_>,
        (mut cache, reader): (LayerCache<'_>, &Matrix),
        scratch: &mut Scratch,
    ) {
        let pass = Pass { shape: &self.shape, ..pass };
        self.project(pass, &mut cache, scratch);
        pass.cpu.pool.soon(reader.first_panel());
        self.attend((pass, self.rule), (&mut cache, reader.operand()), scratch);
    }

    /// The same of rows of queries alone over keys and values of a target, of which rows see those up to `pass.base`; they are
    /// themselves so many positions `ahead` of that.
    pub(super) fn ask(
        &self,
        pass: Pass<'_>,
        (mut cache, reader): (LayerCache<'_>, &Matrix),
        ahead: usize,
        scratch: &mut Scratch,
    ) {
        let pass = Pass { shape: &self.shape, ..pass };
        let window = self.rule.window.saturating_sub(ahead).max(1);
        self.project(pass, &mut cache, scratch);
        self.attend((pass, Rule { window, ..self.rule }), (&mut cache, reader.operand()), scratch);
    }

    /// Queries to `scratch.heads`, rotated and scaled; keys and values to the cache.
    pub(super) fn project(&self, pass: Pass<'_>, cache: &mut LayerCache<'_>, scratch: &mut Scratch) {
        let shape = pass.shape;
        let tiles = shape.head_dim / LANES;
        let count = self.count();
        scratch.heads.resize(count * tiles * pass.m, [0.0; LANES]);
        let acts = &scratch.acts;
        let is_projected = self.project_normed(pass, acts, (&mut scratch.heads, &mut scratch.squares));
        let slabs = match self.adds {
            Adds::Nothing => Vec::new(),
            Adds::Keys | Adds::KeysAndValues => cache.slabs(pass.base..pass.base + pass.m),
        };
        let (keys, values): (Vec<_>, Vec<_>) =
            slabs.into_iter().map(|[k, v]| (HeadOut::Key(k), HeadOut::Value(v))).unzip();
        let places = (0..shape.heads).map(|_| HeadOut::Query).chain(keys).chain(values);
        let places = places.chain(std::iter::repeat_with(|| HeadOut::Gate));
        let mut jobs: Vec<_> = scratch.heads.chunks_exact_mut(tiles * pass.m).zip(places).collect();
        pass.cpu.pool.each(&mut jobs, |head, (out, place)| {
            if !is_projected {
                self.multiply_head(pass, head, acts, out);
            }
            pass.place(out, place, (self.rule, &self.head_norms));
        });
    }

    /// Outputs of a head, `[head_dim / 16][m]`.
    pub(super) fn multiply_head(&self, pass: Pass<'_>, head: usize, acts: &Acts, out: &mut [[f32; LANES]]) {
        let BlockShape { heads, kv_heads, head_dim, .. } = self.shape;
        // values that are keys have no rows of their own
        let skipped = if self.adds == Adds::Keys && head >= heads + kv_heads { kv_heads } else { 0 };
        let first = (head - skipped) * head_dim / LANES;
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
    fn attend(
        &self,
        (pass, rule): (Pass<'_>, Rule),
        (cache, operand): (&mut LayerCache<'_>, Operand),
        scratch: &mut Scratch,
    ) {
        self.attend_wide((pass, rule), (cache, operand), scratch);
        pass.gather_answers(&mut scratch.attended, &mut scratch.wide);
    }

    /// The same; answers of heads that fill no whole columns are not yet gathered.
    fn attend_wide(
        &self,
        (pass, rule): (Pass<'_>, Rule),
        (cache, operand): (&mut LayerCache<'_>, Operand),
        scratch: &mut Scratch,
    ) {
        let (shape, m) = (pass.shape, pass.m);
        let answers = pass.answers(&mut scratch.attended, &mut scratch.wide, operand);
        // segments before the first row's window are seen by nobody
        let before = rule.first_segment(pass.base + 1);
        let segments = (pass.base + m).div_ceil(SEGMENT) - before;
        let group = shape.heads / shape.kv_heads;
        let partial = group * (shape.head_dim + PARTIAL_EXTRA);
        if let Some(tree) = pass.tree {
            scratch.partials.resize(shape.kv_heads * m * segments * partial, 0.0);
            let scratch = (&scratch.heads[..], &mut scratch.partials[..], answers);
            return attend_tree((pass, self), tree, cache, scratch);
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
        let (mut columns, each) = pass.columns(answers, teams, here);
        pass.cpu.pool.chunks_then(
            (&mut scratch.partials, rows * partial),
            (&mut columns, each),
            attend,
            |own, partials, columns| {
                let (kv_head, team) = (own / teams, own % teams);
                let stride = partials.len() / segments;
                for row in 0..here(team) {
                    let seen = pass.base + team * rows + row + 1;
                    let gates = self.gates(pass, heads, (kv_head, team * rows + row));
                    let partials = Partials { numbers: &partials[row * partial..], stride, before, gates };
                    pass.join(rule, partials, seen, (&mut *columns, row));
                }
            },
        );
    }
}
