//! The rows of a pass, and what blocks do with them: norms, products that are added, heads that are placed, partial
//! attention that is joined.
//!
//! Invariant: nothing depends on which thread does an item, and a row's bits not on the rows beside it.

use std::ops::Range;

use super::{
    attention::HeadNorms,
    cache::{AngleTable, LayerCache, Slabs},
    layer::{BlockShape, Next, NormWeight, Reader},
    matrix::{Cpu, Matrix},
    rule::Rule,
    tree::Tree,
};
use draftscope_kernels::{
    Acts, AddNormed, Angles, BLOCK, Column, Join, LANES, MAX_ROWS, Norm, NormHead, NormPart, Onto, Operand,
    PARTIAL_EXTRA, Rotate, SEGMENT, ScaleRows, Sigmoid, StoreKeys, StoreValues, Stretch, divisors, rows_at_once,
};

/// Fewest items of attention per thread.
const ITEMS_A_THREAD: usize = 3;

/// Tiles of a column.
const TILES: usize = BLOCK / LANES;

/// The rows of a pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass<'a> {
    pub(crate) cpu: &'a Cpu,
    pub(crate) shape: &'a BlockShape,
    /// The tables by which blocks rotate; [`Rule::table`] is an index.
    pub(crate) tables: &'a [AngleTable],
    /// First position.
    pub(crate) base: usize,
    /// Rotary position of the first row: `base`, except for modules with other positions.
    pub(crate) at: usize,
    pub(crate) m: usize,
    /// `None` if every row continues the one before it.
    pub(crate) tree: Option<&'a Tree>,
    pub(crate) next: Next<'a>,
}

/// Where the outputs of a head go.
pub(super) enum HeadOut<'a> {
    Query,
    Key(Slabs<'a>),
    Value(Slabs<'a>),
    Gate,
}

/// What a row's answers are multiplied with, for one KV head's query heads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gates<'a> {
    /// `[query heads][head_dim / 16]`, `step` tiles apart.
    pub(crate) tiles: &'a [[f32; LANES]],
    pub(crate) step: usize,
}

/// Where a step's product is added.
pub(super) struct Stream<'a> {
    /// The residual stream, `[d / 16][m]`.
    pub(super) x: &'a mut [[f32; LANES]],
    /// Memory for the product, if it is normed before it is added.
    pub(super) given: &'a mut Vec<[f32; LANES]>,
    /// Memory for sums of squares.
    pub(super) squares: &'a mut Vec<f32>,
    /// What the next step reads.
    pub(super) out: &'a mut Acts,
    /// Factor of the stream after that.
    pub(super) factor: f32,
}

/// Multiplies numbers of the stream with a factor.
fn scale(x: &mut [[f32; LANES]], factor: f32) {
    if factor != 1.0 {
        x.as_flattened_mut().iter_mut().for_each(|x| *x *= factor);
    }
}

/// Partial attention of a row and one KV head's query heads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Partials<'a> {
    /// `[segments]`, `stride` numbers apart.
    pub(crate) numbers: &'a [f32],
    pub(crate) stride: usize,
    /// Number of the first segment.
    pub(crate) before: usize,
    /// Factors of the answers.
    pub(crate) gates: Option<Gates<'a>>,
}

impl Pass<'_> {
    /// Normed rows, ready for matrices; returns whether all were finite.
    pub(crate) fn norm(&self, x: &[[f32; LANES]], weight: &[[f32; LANES]], operand: Operand, out: &mut Acts) -> bool {
        out.shape(self.m, weight.len() * LANES, operand);
        let (eps, kept) = (self.shape.eps, &mut [][..]);
        Norm { x, weight, eps, out, kept }.run_on(self.cpu.isa)
    }

    /// `x += after(matrix · acts)`, and `out` the rows as the next step reads them, if one follows; returns whether all were
    /// finite.
    pub(super) fn add(
        &self,
        product: (&Matrix, &Acts),
        (after, next): (Option<&NormWeight>, Option<Reader<'_>>),
        stream: Stream<'_>,
    ) -> bool {
        match (after, next) {
            (None, None) => {
                self.product(product.0, product.1, Onto::Present, stream.x);
                scale(stream.x, stream.factor);
                true
            }
            (None, Some(next)) => self.add_product_normed(product, stream, next),
            (Some(after), next) => self.add_normed_product(product, stream, (after, next)),
        }
    }

    /// `x += norm(matrix · acts)`, and `out` as [`Pass::add`] says.
    fn add_normed_product(
        &self,
        (matrix, acts): (&Matrix, &Acts),
        Stream { x, given, squares, out, factor }: Stream<'_>,
        (after, next): (&NormWeight, Option<Reader<'_>>),
    ) -> bool {
        let (m, isa) = (self.m, self.cpu.isa);
        given.resize(x.len(), [0.0; LANES]);
        squares.resize(after.len() / TILES * m, 0.0);
        let mut parts: Vec<_> = squares.chunks_exact_mut(m).zip(after.chunks_exact(TILES)).collect();
        self.cpu.pool.chunks_then(
            (given, m),
            (&mut parts, 1),
            |tile, y| matrix.multiply(self.cpu, tile, acts, Onto::Nothing, y),
            |_, y, part| {
                for (squares, weight) in part {
                    NormPart { x: y, weight, out: &mut Column::default(), squares }.run_on(isa);
                }
            },
        );
        let (inverses, finite) = divisors(squares, m, self.shape.eps);
        let sums = x.chunks_exact_mut(TILES * m).zip(given.chunks_exact(TILES * m)).zip(after.chunks_exact(TILES));
        let add = |x: &mut [[f32; LANES]], y: &[[f32; LANES]], weight: &[[f32; LANES]]| {
            AddNormed { x: &mut *x, y, weight, divisors: &inverses[..m] }.run_on(isa);
            scale(x, factor);
        };
        let Some(Reader { weight, raw, operand }) = next else {
            self.cpu.pool.each(&mut sums.collect::<Vec<_>>(), |_, ((x, y), after)| add(x, y, after));
            return finite;
        };
        out.shape(m, weight.len() * LANES, operand);
        let normed = squares.chunks_exact_mut(m).zip(out.columns()).zip(weight.chunks_exact(TILES));
        let mut jobs: Vec<_> = sums.zip(normed).collect();
        self.cpu.pool.each(&mut jobs, |_, (((x, y), after), ((squares, out), weight))| {
            add(x, y, after);
            NormPart { x, weight, out, squares }.run_on(isa);
        });
        let (inverses, also) = divisors(squares, m, self.shape.eps);
        if !raw {
            out.set_factors(inverses);
        }
        finite & also
    }

    /// `x += times · after(given)`, and `out` as [`Pass::add`] says.
    pub(super) fn add_given(
        &self,
        (after, next): (Option<&NormWeight>, Option<Reader<'_>>),
        times: f32,
        Stream { x, given, squares, out, factor }: Stream<'_>,
    ) -> bool {
        let (m, isa) = (self.m, self.cpu.isa);
        if let Some(after) = after {
            self.norm_width(given, after, squares);
        }
        let add = |x: &mut [[f32; LANES]], given: &[[f32; LANES]]| {
            let sums = x.as_flattened_mut().iter_mut().zip(given.as_flattened());
            match times == 1.0 {
                true => sums.for_each(|(x, given)| *x += given),
                false => sums.for_each(|(x, given)| *x += times * given),
            }
            scale(x, factor);
        };
        let sums = x.chunks_exact_mut(TILES * m).zip(given.chunks_exact(TILES * m));
        let Some(Reader { weight, raw, operand }) = next else {
            self.cpu.pool.each(&mut sums.collect::<Vec<_>>(), |_, (x, given)| add(x, given));
            return true;
        };
        out.shape(m, weight.len() * LANES, operand);
        squares.resize(weight.len() / TILES * m, 0.0);
        let normed = squares.chunks_exact_mut(m).zip(out.columns()).zip(weight.chunks_exact(TILES));
        self.cpu.pool.each(&mut sums.zip(normed).collect::<Vec<_>>(), |_, ((x, given), ((squares, out), weight))| {
            add(x, given);
            NormPart { x, weight, out, squares }.run_on(isa);
        });
        let (inverses, finite) = divisors(squares, m, self.shape.eps);
        if !raw {
            out.set_factors(inverses);
        }
        finite
    }

    /// `x += matrix · acts`, and `out` the normed rows; returns whether all were finite.
    fn add_product_normed(
        &self,
        (matrix, acts): (&Matrix, &Acts),
        Stream { x, squares, out, factor, .. }: Stream<'_>,
        Reader { weight, raw, operand }: Reader<'_>,
    ) -> bool {
        out.shape(self.m, weight.len() * LANES, operand);
        squares.resize(weight.len() / TILES * self.m, 0.0);
        let parts = squares.chunks_exact_mut(self.m).zip(out.columns()).zip(weight.chunks_exact(TILES));
        let mut parts: Vec<_> = parts.collect();
        self.cpu.pool.chunks_then(
            (x, self.m),
            (&mut parts, 1),
            |tile, x| matrix.multiply(self.cpu, tile, acts, Onto::Present, x),
            |_, x, part| {
                scale(x, factor);
                for ((squares, out), weight) in part {
                    NormPart { x, weight, out, squares }.run_on(self.cpu.isa);
                }
            },
        );
        let (inverses, finite) = divisors(squares, self.m, self.shape.eps);
        if !raw {
            out.set_factors(inverses);
        }
        finite
    }

    /// What a step reads of the stream `x`; returns whether all rows were finite.
    pub(super) fn read(&self, x: &[[f32; LANES]], reader: Reader<'_>, out: &mut Acts) -> bool {
        let Reader { weight, raw, operand } = reader;
        if !raw {
            return self.norm(x, weight, operand, out);
        }
        out.shape(self.m, weight.len() * LANES, operand);
        let mut squares = vec![0.0; weight.len() / TILES * self.m];
        let parts = x.chunks_exact(TILES * self.m).zip(weight.chunks_exact(TILES)).zip(out.columns());
        for (((x, weight), mut out), squares) in parts.zip(squares.chunks_exact_mut(self.m)) {
            NormPart { x, weight, out: &mut out, squares }.run_on(self.cpu.isa);
        }
        divisors(&squares, self.m, self.shape.eps).1
    }

    /// Norms rows over all of these tiles, `[width / 16][m]`, in place.
    pub(super) fn norm_width(&self, tiles: &mut [[f32; LANES]], weight: &NormWeight, squares: &mut Vec<f32>) {
        let (m, isa) = (self.m, self.cpu.isa);
        squares.resize(weight.len() / TILES * m, 0.0);
        let parts = tiles.chunks_exact(TILES * m).zip(squares.chunks_exact_mut(m)).zip(weight.chunks_exact(TILES));
        self.cpu.pool.each(&mut parts.collect::<Vec<_>>(), |_, ((x, squares), weight)| {
            NormPart { x, weight, out: &mut Column::default(), squares }.run_on(isa);
        });
        let (divisors, _) = divisors(squares, m, self.shape.eps);
        self.cpu.pool.chunks(tiles, TILES * m, |part, tiles| {
            let weight = &weight[part * TILES..][..TILES];
            ScaleRows { tiles, weight, divisors: &divisors[..m] }.run_on(isa);
        });
    }

    /// `x (+)= matrix · acts`, `x` being `[rows / 16][m]`.
    pub(crate) fn product(&self, matrix: &Matrix, acts: &Acts, onto: Onto, x: &mut [[f32; LANES]]) {
        let grain = self.cpu.grain(matrix.tiles());
        self.cpu.pool.chunks(x, grain * self.m, |item, x| {
            for (tile, x) in x.chunks_exact_mut(self.m).enumerate() {
                matrix.multiply(self.cpu, item * grain + tile, acts, onto, x);
            }
        });
    }

    /// Finishes a head's outputs: queries and gates stay, keys and values go to the cache.
    pub(super) fn place(
        &self,
        tiles: &mut [[f32; LANES]],
        out: &mut HeadOut<'_>,
        (rule, [of_queries, of_keys, of_values]): (Rule, &HeadNorms),
    ) {
        let (m, isa) = (self.m, self.cpu.isa);
        let angles = rule.table.map_or(Angles::NONE, |table| match self.tree {
            None => self.tables[table].at(self.at, m),
            Some(tree) => tree.angles(table),
        });
        match out {
            HeadOut::Query => {
                self.norm_head(tiles, m, of_queries.as_ref());
                Rotate { tiles, m, angles, scale: rule.query_scale }.run_on(isa);
            }
            HeadOut::Key(Slabs { start, slabs }) => {
                self.norm_head(tiles, m, of_keys.as_ref());
                Rotate { tiles: &mut *tiles, m, angles, scale: 1.0 }.run_on(isa);
                StoreKeys { tiles, m, position: self.base - *start, slabs }.run_on(isa);
            }
            HeadOut::Value(Slabs { start, slabs }) => {
                self.norm_head(tiles, m, of_values.as_ref());
                StoreValues { tiles, m, position: self.base - *start, slabs }.run_on(isa);
            }
            HeadOut::Gate => Sigmoid { tiles }.run_on(isa),
        }
    }

    /// Norms the rows of one head in place, if the block has such a norm.
    pub(crate) fn norm_head(&self, tiles: &mut [[f32; LANES]], m: usize, weight: Option<&NormWeight>) {
        if let Some(weight) = weight {
            NormHead { tiles, m, weight, eps: self.shape.eps }.run_on(self.cpu.isa);
        }
    }

    /// What adjacent rows see of a segment; `None` if none of them sees any of it.
    pub(crate) fn stretch<'a>(
        &self,
        (cache, rule): (&'a LayerCache<'_>, Rule),
        head: usize,
        rows: Range<usize>,
        segment: usize,
    ) -> Option<Stretch<'a>> {
        let seen = self.base + rows.end;
        let start = segment * SEGMENT;
        (start < seen && segment >= rule.first_segment(self.base + rows.start + 1)).then(|| {
            let [keys, values] = cache.segment(head, segment);
            let Rule { window, cap, .. } = rule;
            Stretch { keys, values, seen: seen - start, head_dim: self.shape.head_dim, window, cap }
        })
    }

    /// Rows that go through a segment together: as many as fit into registers, or all rows of a prompt's pass, but few
    /// enough that every thread gets some items; `items` are those of one row.
    pub(super) fn team_rows(&self, items: usize, heads: usize) -> usize {
        let wanted = ITEMS_A_THREAD * self.cpu.pool.threads();
        let most = if self.m > MAX_ROWS { self.m } else { rows_at_once(self.cpu.isa, heads) };
        let teams = self.m.div_ceil(most).max(wanted.div_ceil(items)).min(self.m);
        self.m.div_ceil(teams)
    }

    /// The columns that each team of each KV head fills, `[kv_heads][teams][columns of its query heads]`, and their
    /// number; `rows(team)` is the number of its rows.
    pub(crate) fn columns<'a>(
        &self,
        out: &'a mut Acts,
        teams: usize,
        rows: impl Fn(usize) -> usize,
    ) -> (Vec<Column<'a>>, usize) {
        let each = self.shape.heads / self.shape.kv_heads * self.head_columns();
        let mut all: Vec<_> = out.columns().collect();
        let mut cut = Vec::with_capacity(all.len() * teams);
        for columns in all.chunks_exact_mut(each) {
            for team in 0..teams {
                cut.extend(columns.iter_mut().map(|column| column.split_off_rows(rows(team))));
            }
        }
        (cut, each)
    }

    /// Joins the partials of a row and one KV head's query heads over all segments that the row sees, into `row` of the
    /// columns; the row is the last of `seen` positions.
    pub(crate) fn join(
        &self,
        rule: Rule,
        Partials { numbers, stride, before, gates }: Partials<'_>,
        seen: usize,
        (columns, row): (&mut [Column<'_>], usize),
    ) {
        let head_dim = self.shape.head_dim;
        let first = rule.first_segment(seen);
        let (segments, numbers) = (seen.div_ceil(SEGMENT) - first, &numbers[(first - before) * stride..]);
        for (head, out) in columns.chunks_exact_mut(self.head_columns()).enumerate() {
            let partials = &numbers[head * (head_dim + PARTIAL_EXTRA)..];
            let factors = gates.map(|Gates { tiles, step }| (&tiles[head * head_dim / LANES * step..], step));
            Join { partials, stride, segments, head_dim, out, row, factors }.run_on(self.cpu.isa);
        }
    }
}
