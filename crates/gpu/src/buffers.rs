//! Buffers of a sequence: activations, what the blocks of a pass write between launches, caches.

use draftscope_kernels::BLOCK;

use crate::GpuError;
use crate::block::{BlockWeights, MAX_PROMPT_HEAD, Shape};
use crate::delta::DeltaMemory;
use crate::device::{Gpu, SLOT_BYTES};
use crate::pass::{MAX_ROWS, PROMPT_ROWS, PassRows, SEGMENT};

/// Activations of up to [`PROMPT_ROWS`] rows as matrices read them.
#[derive(Debug)]
pub(crate) struct Acts {
    pub(crate) values: wgpu::Buffer,
    pub(crate) codes: wgpu::Buffer,
    pub(crate) scales: wgpu::Buffer,
}

impl Acts {
    pub(crate) fn new(gpu: &Gpu, width: usize) -> Self {
        let numbers = PROMPT_ROWS * width;
        Self { values: gpu.storage(4 * numbers), codes: gpu.storage(numbers), scales: gpu.storage(numbers / 2) }
    }

    #[cfg(test)]
    pub(crate) fn codes(&self) -> &wgpu::Buffer {
        &self.codes
    }

    #[cfg(test)]
    pub(crate) fn scales(&self) -> &wgpu::Buffer {
        &self.scales
    }
}

/// Buffers that the blocks of a sequence share.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// The residual stream, `[64][d_model]`.
    pub(crate) x: wgpu::Buffer,
    pub(crate) acts: Acts,
    pub(crate) attended: Acts,
    pub(crate) inner: Acts,
    /// Output of a layer before it is normed and added, `[64][d_model]`.
    pub(crate) output: wgpu::Buffer,
    pub(crate) qkv: wgpu::Buffer,
    /// Queries, or a recurrent layer's answers.
    pub(crate) q: wgpu::Buffer,
    pub(crate) parts: wgpu::Buffer,
    /// Inputs of all blocks for the tokens, `[64][inputs_width]`, and the half of them that is computed.
    pub(crate) inputs: wgpu::Buffer,
    pub(crate) projected: wgpu::Buffer,
    pub(crate) inputs_width: usize,
    /// Most rows of a pass over a prompt.
    pub(crate) prompt_rows: usize,
    pub(crate) segments: usize,
    /// Bound where there is nothing to read.
    pub(crate) nothing: wgpu::Buffer,
    /// Slots of passes.
    pub(crate) run: wgpu::Buffer,
}

impl Scratch {
    /// For passes of these blocks that see up to `ctx_len` positions.
    ///
    /// # Errors
    /// What the driver reports.
    pub(crate) fn new(
        gpu: &Gpu,
        (model, blocks): (&Shape, &[BlockWeights]),
        (ctx_len, slots): (usize, usize),
    ) -> Result<Self, GpuError> {
        let segments = ctx_len.div_ceil(SEGMENT).max(1);
        let shapes: Vec<_> = blocks.iter().map(|block| block.shape(model)).collect();
        let widest = |of: fn(&Shape) -> usize| shapes.iter().map(of).max().unwrap_or(0);
        let deltas = || blocks.iter().filter_map(|block| block.style.delta.as_ref()).map(|delta| delta.shape);
        let suits = |shape: &Shape| (BLOCK..=MAX_PROMPT_HEAD).contains(&shape.head_dim);
        let prompt_rows = if shapes.iter().all(suits) { PROMPT_ROWS } else { MAX_ROWS };
        let parts = 4 * MAX_ROWS * segments * widest(|shape| shape.heads * (shape.head_dim + 2));
        let inputs_width = crate::layer_inputs::inputs_width(blocks);
        let values = deltas().map(|shape| shape.value_width()).max().unwrap_or(0);
        let queries = widest(|shape| shape.heads * shape.head_dim).max(values);
        let qkv = blocks.iter().map(|block| block.qkv.rows()).max().unwrap_or(0);
        let scratch = Self {
            x: gpu.storage(4 * PROMPT_ROWS * model.d_model),
            acts: Acts::new(gpu, model.d_model),
            attended: Acts::new(gpu, queries),
            inner: Acts::new(gpu, widest(|shape| shape.d_ff)),
            output: gpu.storage(4 * PROMPT_ROWS * model.d_model),
            qkv: gpu.storage(4 * PROMPT_ROWS * qkv),
            q: gpu.storage(4 * PROMPT_ROWS * queries),
            parts: gpu.storage(parts),
            inputs: gpu.storage(4 * PROMPT_ROWS * inputs_width),
            projected: gpu.storage(4 * PROMPT_ROWS * inputs_width),
            inputs_width,
            prompt_rows,
            segments,
            nothing: gpu.storage(16),
            run: gpu.uniform(slots as u64 * SLOT_BYTES),
        };
        gpu.check()?;
        Ok(scratch)
    }

    /// Describes a pass, whose tokens begin at `token`, in a slot.
    pub(crate) fn write_slot(&self, gpu: &Gpu, (rows, token): (&PassRows, usize), slot: usize) {
        gpu.write(&self.run, slot as u64 * SLOT_BYTES, bytemuck::cast_slice(&rows.words(token)));
    }

    /// Describes passes, each after the one before it, in the first slots.
    pub(crate) fn write_passes(&self, gpu: &Gpu, passes: &[PassRows]) {
        let start = passes.first().map_or(0, |pass| pass.base);
        let words = passes.iter().flat_map(|pass| pass.words(pass.base - start));
        gpu.write(&self.run, 0, bytemuck::cast_slice(&words.collect::<Vec<u32>>()));
    }
}

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
