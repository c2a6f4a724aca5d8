//! Keys and values of past positions, as IEEE halves, and the angles that rotate them.
//!
//! Every [`SLAB`] positions have a contiguous part of the memory with, for every layer and KV head, a slab of keys
//! `[position / 16][head_dim]` of 16 lanes and one of values `[position][head_dim / 16]`. So the used memory is
//! contiguous whatever the context length, and can lie in huge pages without taking the room of the whole context. Layers may
//! differ in their heads.
//! Invariant: only positions below `len` have a meaning; cutting back changes `len`, and what lies after it is
//! overwritten before it is read.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::tree::{put_row, take_row};
use crate::ModelError;
use crate::nn::RopeSpec;
use draftscope_host::fatal::OutOfMemory;
use draftscope_kernels::{Angles, LANES, LazyZeros, SEGMENT, SLAB};
use draftscope_protocol::MAX_DRAFT_LEN;

/// Heads of a layer's keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KvHeads {
    pub(crate) count: usize,
    pub(crate) width: usize,
}

impl KvHeads {
    /// Groups of [`LANES`] numbers of a head's keys, or values, of one position.
    fn of_head(self) -> usize {
        self.width / LANES
    }

    /// The same of all heads' keys and values.
    fn of_layer(self) -> usize {
        2 * self.count * self.of_head()
    }
}

/// Sizes that cache and attention share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KvShape {
    /// Those of each layer that caches keys and values.
    pub(crate) heads: Arc<[KvHeads]>,
    pub(crate) ctx_len: usize,
    /// Layers of latent attention, which cache a row of so many numbers in f32 instead.
    pub(crate) latents: (usize, usize),
}

impl KvShape {
    /// Lanes of one position.
    fn each(&self) -> usize {
        self.heads.iter().map(|heads| heads.of_layer()).sum()
    }

    /// Lanes in a part, at least one; the last part may be shorter, and so are its slabs.
    fn part(&self) -> usize {
        (SLAB * self.each()).max(1)
    }

    /// Bytes of a position.
    pub(crate) fn bytes_per_position(&self) -> u64 {
        let (layers, width) = self.latents;
        (size_of::<[u16; LANES]>() * self.each() + size_of::<f32>() * layers * width) as u64
    }
}

/// The memory of keys and values. Copies share it: what one writes, the others read.
#[derive(Clone, Debug)]
pub(crate) struct KvMemory {
    shape: KvShape,
    lanes: Arc<Mutex<LazyZeros>>, // [parts][layers][kv_heads][keys, values] slabs
}

impl KvMemory {
    /// The system provides it when positions are first written.
    fn new(shape: KvShape) -> Self {
        let lanes = LazyZeros::new(shape.each() * shape.ctx_len.next_multiple_of(LANES));
        Self { shape, lanes: Arc::new(Mutex::new(lanes)) }
    }

    fn lanes(&self) -> MutexGuard<'_, LazyZeros> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Heads of a layer; `None` if there is no such layer.
    pub(crate) fn heads(&self, layer: usize) -> Option<KvHeads> {
        self.shape.heads.get(layer).copied()
    }

    /// The slabs of a layer; until they are dropped nobody else has any of this memory.
    pub(crate) fn layer(&self, layer: usize) -> LayerCache<'_> {
        let (before, rest) = self.shape.heads.split_at(layer);
        let before = before.iter().map(|heads| heads.of_layer()).sum();
        LayerCache { heads: rest[0], before, each: self.shape.each(), lanes: self.lanes() }
    }
}

/// A cache of one sequence.
#[derive(Debug)]
pub(crate) struct KvCache {
    len: usize,
    memory: KvMemory,
    rows: Vec<f32>, // [layers of latent attention][positions][width]
}

/// The slabs of one layer.
#[derive(Debug)]
pub(crate) struct LayerCache<'a> {
    heads: KvHeads,
    /// Lanes of a position in the layers before.
    before: usize,
    /// Lanes of a position in all layers.
    each: usize,
    lanes: MutexGuard<'a, LazyZeros>,
}

/// Keys or values of one head, of consecutive positions, to be written.
#[derive(Debug)]
pub(crate) struct Slabs<'a> {
    /// Position at which the first slab begins.
    pub(crate) start: usize,
    pub(crate) slabs: Vec<&'a mut [[u16; LANES]]>,
}

impl LayerCache<'_> {
    /// Keys and values of a head from the start of a segment to the end of the slab.
    pub(crate) fn segment(&self, head: usize, segment: usize) -> [&[[u16; LANES]]; 2] {
        let (position, part) = (segment * SEGMENT, SLAB * self.each);
        let start = position / SLAB * part;
        let part = &self.lanes[start..self.lanes.len().min(start + part)];
        let (positions, of_head) = (part.len() / self.each, self.heads.of_head());
        let slab = positions * of_head;
        let keys = positions * self.before + 2 * head * slab;
        let skip = position % SLAB * of_head;
        [keys, keys + slab].map(|start| &part[start + skip..start + slab])
    }

    /// Keys and values of every head in the slabs that contain these positions.
    pub(crate) fn slabs(&mut self, positions: Range<usize>) -> Vec<[Slabs<'_>; 2]> {
        let first = positions.start / SLAB;
        let count = if positions.is_empty() { 0 } else { positions.end.div_ceil(SLAB) - first };
        let empty = || Slabs { start: first * SLAB, slabs: Vec::with_capacity(count) };
        let mut heads: Vec<_> = (0..self.heads.count).map(|_| [empty(), empty()]).collect();
        for part in self.lanes.chunks_mut(SLAB * self.each).skip(first).take(count) {
            let positions = part.len() / self.each;
            let own = part[positions * self.before..].chunks_exact_mut(positions * self.heads.of_head());
            heads.iter_mut().flatten().zip(own).for_each(|(head, slab)| head.slabs.push(slab));
        }
        heads
    }
}

impl KvCache {
    /// An empty cache. The system provides memory when positions are first written.
    pub(crate) fn new(shape: KvShape) -> Self {
        let (layers, width) = shape.latents;
        // the system gives zeros as pages that take no memory until they are written
        OutOfMemory::unless_there_are(layers * width * shape.ctx_len * size_of::<f32>());
        let rows = vec![0.0; layers * width * shape.ctx_len];
        Self { len: 0, memory: KvMemory::new(shape), rows }
    }

    pub(crate) fn shape(&self) -> &KvShape {
        &self.memory.shape
    }

    /// The memory of its keys and values.
    pub(crate) fn memory(&self) -> &KvMemory {
        &self.memory
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Position at which `m` more begin.
    ///
    /// # Errors
    /// [`ModelError::ContextFull`] when they do not fit.
    pub(crate) fn room(&self, m: usize) -> Result<usize, ModelError> {
        let (needed, ctx_len) = (self.len.saturating_add(m), self.shape().ctx_len);
        if needed > ctx_len {
            return Err(ModelError::ContextFull { needed, ctx_len });
        }
        Ok(self.len)
    }

    /// Sets the length after writing.
    pub(crate) fn set_len(&mut self, len: usize) {
        debug_assert!(len <= self.shape().ctx_len, "{len} positions in a cache of {}", self.shape().ctx_len);
        self.len = len;
    }

    pub(crate) fn layer(&mut self, layer: usize) -> LayerCache<'_> {
        self.memory.layer(layer)
    }

    /// The rows of a layer of latent attention, `[positions][width]`.
    pub(crate) fn latents(&mut self, layer: usize) -> &mut [f32] {
        let len = self.shape().ctx_len * self.shape().latents.1;
        &mut self.rows[layer * len..][..len]
    }

    /// Keeps, of the rows after `base`, those of `path`, which ascends.
    pub(crate) fn retain(&mut self, base: usize, path: &[usize]) {
        let positions = base..base + path.last().map_or(0, |row| row + 1);
        for (layer, heads) in self.memory.shape.heads.iter().enumerate() {
            for mut slabs in self.memory.layer(layer).slabs(positions.clone()) {
                // a row is never before its destination, so none is overwritten before it is read
                for (depth, row) in path.iter().enumerate().filter(|(depth, row)| depth != *row) {
                    let kept = take_row(&slabs, base + row, heads.width);
                    put_row(&mut slabs, base + depth, &kept);
                }
            }
        }
        let (layers, width) = self.shape().latents;
        for layer in 0..layers {
            let rows = self.latents(layer);
            for (depth, row) in path.iter().enumerate().filter(|(depth, row)| depth != *row) {
                rows.copy_within((base + row) * width..(base + row + 1) * width, (base + depth) * width);
            }
        }
        self.set_len(base + path.len());
    }

    /// A copy; only the used part is copied.
    pub(crate) fn fork(&self) -> Self {
        let shape = self.shape();
        let mut fork = Self::new(shape.clone());
        fork.len = self.len;
        let (layers, width) = shape.latents;
        for layer in 0..layers {
            let used = layer * shape.ctx_len * width..(layer * shape.ctx_len + self.len) * width;
            fork.rows[used.clone()].copy_from_slice(&self.rows[used]);
        }
        let (from, mut to) = (self.memory.lanes(), fork.memory.lanes());
        for (index, (from, to)) in from.chunks(shape.part()).zip(to.chunks_mut(shape.part())).enumerate() {
            let used = self.len.saturating_sub(index * SLAB).min(SLAB).next_multiple_of(LANES);
            let (positions, mut at) = (from.len() / shape.each(), 0);
            for heads in shape.heads.iter() {
                for _ in 0..2 * heads.count {
                    let kept = at..at + used * heads.of_head();
                    to[kept.clone()].copy_from_slice(&from[kept]);
                    at += positions * heads.of_head();
                }
            }
        }
        drop(to);
        fork
    }
}

/// Positions after a full context that have angles too: drafts of an assistant are one further, and as many as there may be.
pub(crate) const AHEAD: usize = 1 + MAX_DRAFT_LEN as usize;

/// Cosines and sines for all positions of a context, and a few [after](AHEAD) it.
#[derive(Clone, Debug)]
pub(crate) struct AngleTable {
    half: usize,                 // rotated / 32, rounded up
    cos: Arc<Vec<[f32; LANES]>>, // [ctx][rotated / 32]
    sin: Arc<Vec<[f32; LANES]>>,
}

impl AngleTable {
    /// `angle(p, i) = p · frequency(i)` of the pairs of `rotated` values, for the half-split order of pairs.
    pub(crate) fn new(rope: &RopeSpec, rotated: usize, ctx_len: usize) -> Self {
        let (frequencies, amplitude) = (rope.frequencies(rotated, ctx_len), rope.amplitude());
        let half = frequencies.len().div_ceil(LANES);
        let table = |of: fn(f64) -> f64| {
            let lanes = (0..ctx_len + AHEAD).flat_map(|p| frequencies.chunks(LANES).map(move |f| (p, f)));
            let mut table: Vec<[f32; LANES]> = OutOfMemory::room_for((ctx_len + AHEAD) * half);
            table.extend(lanes.map(|(p, f)| {
                let mut lanes = [of(0.0) as f32; LANES]; // lanes after the last pair do not turn
                lanes.iter_mut().zip(f).for_each(|(lane, f)| *lane = (of(p as f64 * f) * amplitude) as f32);
                lanes
            }));
            Arc::new(table)
        };
        Self { half, cos: table(f64::cos), sin: table(f64::sin) }
    }

    /// Of `m` positions.
    pub(crate) fn at(&self, position: usize, m: usize) -> Angles<'_> {
        let range = position * self.half..(position + m) * self.half;
        Angles { cos: &self.cos[range.clone()], sin: &self.sin[range] }
    }
}
