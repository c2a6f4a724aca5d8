//! What the blocks of a pass write between launches: activations, and the slots that describe passes.

use draftscope_kernels::BLOCK;

use crate::GpuError;
use crate::device::Gpu;
use crate::kernels::{MAX_ROWS, PROMPT_ROWS, PassRows, SEGMENT, SLOT_BYTES};
use crate::weights::{BlockWeights, MAX_PROMPT_HEAD, Shape, inputs_width};

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
        let inputs_width = inputs_width(blocks);
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
