//! Keys and values of past positions, as IEEE halves, and the angles that rotate them.
//!
//! Every [`SLAB`] positions have a contiguous part of the memory with, for every layer and KV head, a slab of keys
//! `[position / 16][head_dim]` of 16 lanes and one of values `[position][head_dim / 16]`. So the used memory is
//! contiguous whatever the context length, and can lie in huge pages without taking the room of the whole context.
//! Invariant: only positions below `len` have a meaning; cutting back changes `len`, and what lies after it is
//! overwritten before it is read.

use std::{ops::Range, sync::Arc};

use super::tree::{put_row, take_row};
use crate::ModelError;
use crate::nn::RopeSpec;
use draftscope_host::fatal::OutOfMemory;
use draftscope_kernels::{Angles, LANES, LazyZeros, SEGMENT, SLAB};

/// Sizes that cache and attention share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KvShape {
    pub(crate) layers: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) ctx_len: usize,
    /// Layers of latent attention, which cache a row of so many numbers in f32 instead.
    pub(crate) latents: (usize, usize),
}

impl KvShape {
    /// Slabs in a part: keys and values of every head in every layer.
    fn slabs(self) -> usize {
        self.layers * self.kv_heads * 2
    }

    /// Lanes that `positions` take in a slab.
    fn lanes(self, positions: usize) -> usize {
        positions.next_multiple_of(LANES) * self.head_dim / LANES
    }

    /// Lanes in a part, at least one; the last part may be shorter, and so are its slabs.
    fn part(self) -> usize {
        (self.slabs() * self.lanes(SLAB)).max(1)
    }

    /// Bytes of a position.
    pub(crate) fn bytes_per_position(self) -> u64 {
        let (layers, width) = self.latents;
        (2 * 2 * self.layers * self.kv_heads * self.head_dim + size_of::<f32>() * layers * width) as u64
    }
}

/// A cache of one sequence.
#[derive(Debug)]
pub(crate) struct KvCache {
    shape: KvShape,
    len: usize,
    lanes: LazyZeros, // [parts][layers][kv_heads][keys, values] slabs
    rows: Vec<f32>,   // [layers of latent attention][positions][width]
}

/// The slabs of one layer.
#[derive(Debug)]
pub(crate) struct LayerCache<'a> {
    shape: KvShape,
    layer: usize,
    lanes: &'a mut [[u16; LANES]],
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
        let (position, part) = (segment * SEGMENT, self.shape.part());
        let start = position / SLAB * part;
        let part = &self.lanes[start..self.lanes.len().min(start + part)];
        let slab = part.len() / self.shape.slabs();
        let keys = 2 * (self.layer * self.shape.kv_heads + head) * slab;
        let skip = self.shape.lanes(position % SLAB);
        [keys, keys + slab].map(|start| &part[start + skip..start + slab])
    }

    /// Keys and values of every head in the slabs that contain these positions.
    pub(crate) fn slabs(&mut self, positions: Range<usize>) -> Vec<[Slabs<'_>; 2]> {
        let first = positions.start / SLAB;
        let count = if positions.is_empty() { 0 } else { positions.end.div_ceil(SLAB) - first };
        let empty = || Slabs { start: first * SLAB, slabs: Vec::with_capacity(count) };
        let mut heads: Vec<_> = (0..self.shape.kv_heads).map(|_| [empty(), empty()]).collect();
        for part in self.lanes.chunks_mut(self.shape.part()).skip(first).take(count) {
            let slabs = part.chunks_exact_mut(part.len() / self.shape.slabs());
            let own = slabs.skip(2 * self.layer * self.shape.kv_heads);
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
        Self { shape, len: 0, lanes: LazyZeros::new(shape.slabs() * shape.lanes(shape.ctx_len)), rows }
    }

    pub(crate) fn shape(&self) -> KvShape {
        self.shape
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Position at which `m` more begin.
    ///
    /// # Errors
    /// [`ModelError::ContextFull`] when they do not fit.
    pub(crate) fn room(&self, m: usize) -> Result<usize, ModelError> {
        let (needed, ctx_len) = (self.len.saturating_add(m), self.shape.ctx_len);
        if needed > ctx_len {
            return Err(ModelError::ContextFull { needed, ctx_len });
        }
        Ok(self.len)
    }

    /// Sets the length after writing.
    pub(crate) fn set_len(&mut self, len: usize) {
        debug_assert!(len <= self.shape.ctx_len, "{len} positions in a cache of {}", self.shape.ctx_len);
        self.len = len;
    }

    pub(crate) fn layer(&mut self, layer: usize) -> LayerCache<'_> {
        LayerCache { shape: self.shape, layer, lanes: &mut self.lanes }
    }

    /// The rows of a layer of latent attention, `[positions][width]`.
    pub(crate) fn latents(&mut self, layer: usize) -> &mut [f32] {
        let len = self.shape.ctx_len * self.shape.latents.1;
        &mut self.rows[layer * len..][..len]
    }

    /// Keeps, of the rows after `base`, those of `path`, which ascends.
    pub(crate) fn retain(&mut self, base: usize, path: &[usize]) {
        let KvShape { layers, head_dim, .. } = self.shape;
        let positions = base..base + path.last().map_or(0, |row| row + 1);
        for layer in 0..layers {
            for mut slabs in self.layer(layer).slabs(positions.clone()) {
                // a row is never before its destination, so none is overwritten before it is read
                for (depth, row) in path.iter().enumerate().filter(|(depth, row)| depth != *row) {
                    let kept = take_row(&slabs, base + row, head_dim);
                    put_row(&mut slabs, base + depth, &kept);
                }
            }
        }
        let (layers, width) = self.shape.latents;
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
        let mut fork = Self::new(self.shape);
        fork.len = self.len;
        let (layers, width) = self.shape.latents;
        for layer in 0..layers {
            let used = layer * self.shape.ctx_len * width..(layer * self.shape.ctx_len + self.len) * width;
            fork.rows[used.clone()].copy_from_slice(&self.rows[used]);
        }
        let part = self.shape.part();
        for (index, (from, to)) in self.lanes.chunks(part).zip(fork.lanes.chunks_mut(part)).enumerate() {
            let used = self.shape.lanes(self.len.saturating_sub(index * SLAB).min(SLAB));
            let slab = from.len() / self.shape.slabs();
            for (from, to) in from.chunks_exact(slab).zip(to.chunks_exact_mut(slab)) {
                to[..used].copy_from_slice(&from[..used]);
            }
        }
        fork
    }
}

/// Cosines and sines for all positions of a context.
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
            let lanes = (0..ctx_len).flat_map(|p| frequencies.chunks(LANES).map(move |f| (p, f)));
            let mut table: Vec<[f32; LANES]> = OutOfMemory::room_for(ctx_len * half);
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
