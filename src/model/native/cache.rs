//! Keys and values of past positions, as IEEE halves, and the angles that rotate them.
//!
//! Every layer and KV head has a slab: keys `[position / 16][head_dim]` of 16 lanes, values
//! `[position][head_dim / 16]`. Invariant: only positions below `len` mean anything; cutting back
//! is a change of `len`, and what lies beyond is overwritten before it is read.

use std::sync::Arc;

use super::kernel::{Angles, LANES};
use super::tree::{put_row, take_row};
use crate::model::{ModelError, rope::RopeSpec};

/// Sizes that cache and attention share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KvShape {
    pub(super) layers: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) ctx_len: usize,
}

impl KvShape {
    /// Lanes in a slab.
    fn slab(self) -> usize {
        self.ctx_len.next_multiple_of(LANES) * self.head_dim / LANES
    }

    /// Bytes that a position takes.
    pub(super) fn bytes_per_position(self) -> u64 {
        (2 * 2 * self.layers * self.kv_heads * self.head_dim) as u64
    }
}

/// A cache of one sequence.
#[derive(Debug)]
pub(super) struct KvCache {
    shape: KvShape,
    len: usize,
    keys: Vec<[u16; LANES]>,   // [layers][kv_heads] slabs
    values: Vec<[u16; LANES]>, // [layers][kv_heads] slabs
}

/// The slabs of one layer, one a KV head.
#[derive(Debug)]
pub(super) struct LayerCache<'a> {
    pub(super) slab: usize,
    pub(super) keys: &'a mut [[u16; LANES]],
    pub(super) values: &'a mut [[u16; LANES]],
}

impl KvCache {
    /// An empty cache. Memory is taken by the system when positions are first written.
    pub(super) fn new(shape: KvShape) -> Self {
        let lanes = shape.layers * shape.kv_heads * shape.slab();
        Self { shape, len: 0, keys: vec![[0; LANES]; lanes], values: vec![[0; LANES]; lanes] }
    }

    pub(super) fn shape(&self) -> KvShape {
        self.shape
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Where `m` more positions start.
    ///
    /// # Errors
    /// [`ModelError::ContextFull`] when they do not fit.
    pub(super) fn room(&self, m: usize) -> Result<usize, ModelError> {
        let (needed, ctx_len) = (self.len.saturating_add(m), self.shape.ctx_len);
        if needed > ctx_len {
            return Err(ModelError::ContextFull { needed, ctx_len });
        }
        Ok(self.len)
    }

    /// Positions `..len` are in the cache now.
    pub(super) fn set_len(&mut self, len: usize) {
        debug_assert!(len <= self.shape.ctx_len, "{len} positions in a cache of {}", self.shape.ctx_len);
        self.len = len;
    }

    pub(super) fn layer(&mut self, layer: usize) -> LayerCache<'_> {
        let slab = self.shape.slab();
        let all = slab * self.shape.kv_heads;
        let range = layer * all..(layer + 1) * all;
        LayerCache { slab, keys: &mut self.keys[range.clone()], values: &mut self.values[range] }
    }

    /// Keeps of the rows behind `base` those of `path`, which ascends, and nothing behind them.
    pub(super) fn retain(&mut self, base: usize, path: &[usize]) {
        let (slab, head_dim) = (self.shape.slab(), self.shape.head_dim);
        for (keys, values) in self.keys.chunks_exact_mut(slab).zip(self.values.chunks_exact_mut(slab)) {
            // a row never lies before the place it goes to, so none is overwritten before it is read
            for (depth, row) in path.iter().enumerate().filter(|(depth, row)| depth != *row) {
                put_row(keys, values, base + depth, &take_row(keys, values, base + row, head_dim));
            }
        }
        self.set_len(base + path.len());
    }

    /// A copy; only what is used is copied.
    pub(super) fn fork(&self) -> Self {
        let mut fork = Self::new(self.shape);
        fork.len = self.len;
        let slab = self.shape.slab();
        let used = self.len.next_multiple_of(LANES) * self.shape.head_dim / LANES;
        for (from, to) in [(&self.keys, &mut fork.keys), (&self.values, &mut fork.values)] {
            for (from, to) in from.chunks_exact(slab).zip(to.chunks_exact_mut(slab)) {
                to[..used].copy_from_slice(&from[..used]);
            }
        }
        fork
    }
}

/// Cosines and sines for all positions of a context.
#[derive(Clone, Debug)]
pub(super) struct AngleTable {
    half: usize,              // head_dim / 32
    cos: Arc<[[f32; LANES]]>, // [ctx][head_dim / 32]
    sin: Arc<[[f32; LANES]]>,
}

impl AngleTable {
    /// `angle(p, i) = p · frequency(i)`, for the half-split order of pairs.
    pub(super) fn new(rope: &RopeSpec, head_dim: usize, ctx_len: usize) -> Self {
        let half = head_dim / 2;
        let (frequencies, amplitude) = (rope.frequencies(head_dim), rope.amplitude());
        let table = |of: fn(f64) -> f64| -> Arc<[[f32; LANES]]> {
            let lanes = (0..ctx_len).flat_map(|p| frequencies.as_chunks::<LANES>().0.iter().map(move |f| (p, f)));
            lanes.map(|(p, f)| f.map(|f| (of(p as f64 * f) * amplitude) as f32)).collect()
        };
        Self { half: half / LANES, cos: table(f64::cos), sin: table(f64::sin) }
    }

    /// Of `m` positions.
    pub(super) fn at(&self, position: usize, m: usize) -> Angles<'_> {
        let range = position * self.half..(position + m) * self.half;
        Angles { cos: &self.cos[range.clone()], sin: &self.sin[range] }
    }
}
