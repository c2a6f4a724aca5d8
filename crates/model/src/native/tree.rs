//! Attention of a tree's rows: each sees the cache and its ancestors only.
//!
//! For each row its ancestors' keys and values are copied after the cache to the positions they would have in a chain,
//! and the usual kernels run; at the end every row is in its own place again, so that one path can be kept. Invariant:
//! a row's bits are those it would have in a chain of its ancestors, since the same numbers are in the same places.
//! Threads share the KV heads; nothing depends on which thread does which.

use super::{
    attention::Attention,
    cache::{AngleTable, LayerCache, Slabs},
    pass::{Gates, Partials, Pass},
    rule::Rule,
};
use crate::{ModelError, tree_depths};
use draftscope_kernels::{Acts, Angles, Column, LANES, PARTIAL_EXTRA, Queries, SEGMENT, SLAB, Stretch, attend};

/// Which row follows which, and at which depth.
#[derive(Debug)]
pub(crate) struct Tree {
    /// Rows from the root to each row, itself included.
    paths: Vec<Vec<usize>>,
    /// Cosines and sines `[m][head_dim / 32]` of each table.
    angles: Vec<[Vec<[f32; LANES]>; 2]>,
}

impl Tree {
    /// The tree in which row `i` continues row `parents[i]`, after `base` positions.
    ///
    /// # Errors
    /// As [`tree_depths`].
    pub(crate) fn new(parents: &[usize], tables: &[AngleTable], base: usize) -> Result<Self, ModelError> {
        let depths = tree_depths(parents)?;
        let mut paths: Vec<Vec<usize>> = Vec::with_capacity(parents.len());
        for (row, parent) in parents.iter().enumerate() {
            let mut path = if row == 0 { Vec::new() } else { paths[*parent].clone() };
            path.push(row);
            paths.push(path);
        }
        let of_table = |table: &AngleTable| {
            let at = |depth: &usize| table.at(base + depth, 1);
            let cos = depths.iter().flat_map(|depth| at(depth).cos.to_vec()).collect();
            [cos, depths.iter().flat_map(|depth| at(depth).sin.to_vec()).collect()]
        };
        Ok(Self { paths, angles: tables.iter().map(of_table).collect() })
    }

    /// Rows from the root to each row, itself included.
    pub(super) fn paths(&self) -> &[Vec<usize>] {
        &self.paths
    }

    /// Those of all rows, each at its depth, in the table of this index.
    pub(crate) fn angles(&self, table: usize) -> Angles<'_> {
        let [cos, sin] = &self.angles[table];
        Angles { cos, sin }
    }
}

/// One KV head's part of a layer.
struct Head<'a> {
    slabs: [Slabs<'a>; 2],   // keys and values, from position 0 on
    partials: &'a mut [f32], // [m][segments][group][head_dim + PARTIAL_EXTRA]
    out: &'a mut [Column<'a>],
}

/// Attention of all rows; `queries` are the outputs of all heads, `partials` is `[kv_heads][m][segments][group][head_dim + PARTIAL_EXTRA]`.
pub(crate) fn attend_tree(
    (pass, attention): (Pass<'_>, &Attention),
    tree: &Tree,
    cache: &mut LayerCache<'_>,
    (queries, partials, out): (&[[f32; LANES]], &mut [f32], &mut Acts),
) {
    let shape = pass.shape;
    let group_tiles = shape.heads / shape.kv_heads * shape.head_dim / LANES * pass.m;
    let parts = partials.chunks_exact_mut(partials.len() / shape.kv_heads);
    let (mut columns, each) = pass.columns(out, 1, |_| pass.m);
    let slabs = cache.slabs(0..pass.base + pass.m).into_iter();
    let heads = slabs.zip(parts.zip(columns.chunks_exact_mut(each)));
    let heads = heads.map(|(slabs, (partials, out))| Head { slabs, partials, out });
    pass.cpu.pool.each(&mut heads.collect::<Vec<_>>(), |index, head| {
        let tiles = &queries[index * group_tiles..(index + 1) * group_tiles];
        head.attend((pass, attention.rule), tree, (tiles, &|row| attention.gates(pass, queries, (index, row))));
    });
}

impl Head<'_> {
    /// `gates` are those of a row.
    fn attend<'g>(
        &mut self,
        (pass, rule): (Pass<'_>, Rule),
        tree: &Tree,
        (tiles, gates): (&[[f32; LANES]], &dyn Fn(usize) -> Option<Gates<'g>>),
    ) {
        let (m, base, head_dim) = (pass.m, pass.base, pass.shape.head_dim);
        let rows: Vec<Row> = (0..m).map(|row| take_row(&self.slabs, base + row, head_dim)).collect();
        let partial = pass.shape.heads / pass.shape.kv_heads * (head_dim + PARTIAL_EXTRA);
        let per_row = self.partials.len() / m;
        for (row, path) in tree.paths.iter().enumerate() {
            for (depth, ancestor) in path.iter().enumerate() {
                put_row(&mut self.slabs, base + depth, &rows[*ancestor]);
            }
            let seen = base + path.len();
            let before = rule.first_segment(seen);
            let [keys, values] = &self.slabs;
            let outs = self.partials[row * per_row..(row + 1) * per_row].chunks_exact_mut(partial);
            for (out, start) in outs.zip((before * SEGMENT..seen).step_by(SEGMENT)) {
                let from = start % SLAB * head_dim / LANES;
                let [keys, values] = [keys, values].map(|slabs| &slabs.slabs[start / SLAB][from..]);
                let Rule { window, cap, .. } = rule;
                let stretch = Stretch { keys, values, seen: seen - start, head_dim, window, cap };
                attend(pass.cpu.isa, Queries { tiles, m, first: row, rows: 1 }, stretch, out);
            }
            let numbers = &self.partials[row * per_row..];
            let partials = Partials { numbers, stride: partial, before, gates: gates(row) };
            pass.join(rule, partials, seen, (&mut *self.out, row));
        }
        for (row, kept) in rows.iter().enumerate() {
            put_row(&mut self.slabs, base + row, kept);
        }
    }
}

/// Keys and values of one position and KV head.
pub(crate) struct Row {
    keys: Vec<u16>,            // [head_dim]
    values: Vec<[u16; LANES]>, // [head_dim / 16]
}

/// A position's keys and values.
pub(crate) fn take_row([keys, values]: &[Slabs<'_>; 2], position: usize, head_dim: usize) -> Row {
    let (slab, at) = ((position - keys.start) / SLAB, position % SLAB);
    let lines = &keys.slabs[slab][at / LANES * head_dim..][..head_dim];
    Row {
        keys: lines.iter().map(|line| line[at % LANES]).collect(),
        values: values.slabs[slab][at * head_dim / LANES..][..head_dim / LANES].to_vec(),
    }
}

/// Writes a position's keys and values to their place.
pub(crate) fn put_row([keys, values]: &mut [Slabs<'_>; 2], position: usize, row: &Row) {
    let head_dim = row.keys.len();
    let (slab, at) = ((position - keys.start) / SLAB, position % SLAB);
    for (line, key) in keys.slabs[slab][at / LANES * head_dim..].iter_mut().zip(&row.keys) {
        line[at % LANES] = *key;
    }
    values.slabs[slab][at * head_dim / LANES..][..row.values.len()].copy_from_slice(&row.values);
}
