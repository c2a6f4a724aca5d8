//! What a block keeps of the rows before: keys and values, or the state of a recurrent layer.

use crate::device::Gpu;
use crate::kernels::MAX_ROWS;
use crate::weights::{BlockWeights, DeltaShape, Shape};

/// Rows that run alone one after the other until the state moves on: as many as a pass has.
pub(crate) const KEPT_ROWS: usize = MAX_ROWS;

/// Keys and values of one block, `[positions][kv_heads][head_dim / 2]` words each, or the memory of a recurrent layer.
#[derive(Debug)]
pub(crate) struct LayerCache {
    pub(crate) keys: wgpu::Buffer,
    pub(crate) values: wgpu::Buffer,
    /// Bytes that the keys of a position take, or its values.
    pub(crate) row_bytes: u64,
    pub(crate) delta: Option<DeltaMemory>,
}

impl LayerCache {
    pub(crate) fn new(gpu: &Gpu, (model, block): (&Shape, &BlockWeights), positions: usize) -> Self {
        let row_bytes = block.kv_bytes(model) / 2;
        let delta = block.style.delta.as_ref().map(|delta| DeltaMemory::new(gpu, &delta.shape));
        let bytes = positions * row_bytes as usize;
        Self { keys: gpu.storage(bytes), values: gpu.storage(bytes), row_bytes, delta }
    }
}

/// Moves rows of a pass down to the places that they keep, through a buffer: `(to, from)` after position `base`.
pub(crate) fn move_rows(
    encoder: &mut wgpu::CommandEncoder,
    caches: &[LayerCache],
    (base, moves): (usize, &[(usize, usize)]),
    through: &wgpu::Buffer,
) {
    for cache in caches.iter().filter(|cache| cache.row_bytes > 0) {
        for buffer in [&cache.keys, &cache.values] {
            for (to, from) in moves {
                // a buffer cannot be copied to itself; rows only move down, so the order is safe
                let [from, to] = [from, to].map(|row| (base + row) as u64 * cache.row_bytes);
                encoder.copy_buffer_to_buffer(buffer, from, through, 0, cache.row_bytes);
                encoder.copy_buffer_to_buffer(through, 0, buffer, to, cache.row_bytes);
            }
        }
    }
}

/// Copies the first positions of all keys and values.
pub(crate) fn copy_caches(gpu: &Gpu, (from, to): (&[LayerCache], &[LayerCache]), positions: usize) {
    if positions == 0 {
        return;
    }
    let mut encoder = gpu.encoder();
    for (from, to) in from.iter().zip(to).filter(|(from, _)| from.row_bytes > 0) {
        let bytes = positions as u64 * from.row_bytes;
        encoder.copy_buffer_to_buffer(&from.keys, 0, &to.keys, 0, bytes);
        encoder.copy_buffer_to_buffer(&from.values, 0, &to.values, 0, bytes);
    }
    gpu.submit(encoder);
}

/// A layer's state, and what it keeps of rows.
#[derive(Debug)]
pub(crate) struct DeltaMemory {
    pub(crate) raw: wgpu::Buffer,
    pub(crate) mixed: wgpu::Buffer,
    pub(crate) rates: wgpu::Buffer,
    pub(crate) state: wgpu::Buffer,
    /// The state [`KEPT_ROWS`] rows before, if they ran alone.
    pub(crate) older: wgpu::Buffer,
}

impl DeltaMemory {
    pub(crate) fn new(gpu: &Gpu, shape: &DeltaShape) -> Self {
        let row = |width: usize| gpu.storage(4 * shape.ring() * width);
        let state = || gpu.storage(4 * shape.state());
        Self {
            raw: row(shape.channels()),
            mixed: row(shape.channels()),
            rates: row(2 * shape.value_heads),
            state: state(),
            older: state(),
        }
    }

    /// All of it.
    pub(crate) fn buffers(&self) -> [&wgpu::Buffer; 5] {
        [&self.raw, &self.mixed, &self.rates, &self.state, &self.older]
    }
}
