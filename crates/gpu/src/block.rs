//! One transformer block of the Llama kind: its weights, its cache, and its nine launches.
//!
//! norm · q, k, v · heads and cache · attention · joining · output · norm · gate and up · down. Invariant: bind groups
//! are made once, with a sequence; a pass only records launches.

use draftscope_kernels::BLOCK;

use crate::GpuError;
use crate::device::{Dims, Gpu};
use crate::kernel::{Kernel, OUTPUTS, ROWS_AT_ONCE, TILE};
use crate::matrix::Matrix;
use crate::pass::{MAX_ROWS, PROMPT_ROWS, PassRows, SEGMENT};

/// Sizes of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Width of the residual stream; a multiple of 32, as the other widths.
    pub d_model: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads, a divisor.
    pub kv_heads: usize,
    /// Width of a head, at most 256.
    pub head_dim: usize,
    /// Width of the feed-forward layer.
    pub d_ff: usize,
    /// Added to the mean of squares in norms.
    pub eps: f32,
}

/// Widest head that the kernels run.
pub const MAX_HEAD_DIM: usize = 256;

impl Shape {
    fn heads_in_qkv(&self) -> usize {
        self.heads + 2 * self.kv_heads
    }

    /// Bytes that keys and values of a position take in one block.
    #[must_use]
    pub fn kv_bytes(&self) -> u64 {
        (2 * 2 * self.kv_heads * self.head_dim) as u64
    }
}

/// Weights of a block.
#[derive(Clone, Debug)]
pub struct BlockWeights {
    /// `[d_model]`
    pub attn_norm: wgpu::Buffer,
    /// `[(heads + 2 kv_heads) head_dim, d_model]`
    pub qkv: Matrix,
    /// `[(heads + 2 kv_heads) head_dim]`
    pub bias: Option<wgpu::Buffer>,
    /// Of queries, then of keys: `[2][head_dim]`
    pub head_norms: Option<wgpu::Buffer>,
    /// `[d_model, heads head_dim]`
    pub out: Matrix,
    /// `[d_model]`
    pub ffn_norm: wgpu::Buffer,
    /// `[d_ff, d_model]`
    pub gate: Matrix,
    /// `[d_ff, d_model]`, in the form of `gate`
    pub up: Matrix,
    /// `[d_model, d_ff]`
    pub down: Matrix,
}

impl BlockWeights {
    /// Bytes of its matrices.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        [&self.qkv, &self.out, &self.gate, &self.up, &self.down].iter().map(|matrix| matrix.bytes()).sum()
    }
}

/// Activations of up to [`PROMPT_ROWS`] rows as matrices read them.
#[derive(Debug)]
pub(crate) struct Acts {
    pub(crate) values: wgpu::Buffer,
    codes: wgpu::Buffer,
    scales: wgpu::Buffer,
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
    attended: Acts,
    inner: Acts,
    qkv: wgpu::Buffer,
    q: wgpu::Buffer,
    parts: wgpu::Buffer,
    /// Rows of the passes over a prompt.
    pub(crate) prompt_rows: usize,
    segments: usize,
    /// Bound where there is nothing to read.
    nothing: wgpu::Buffer,
    /// Slots of passes.
    pub(crate) run: wgpu::Buffer,
}

impl Scratch {
    /// For passes that see up to `ctx_len` positions.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`] if attention needs a larger buffer than the device allows.
    pub(crate) fn new(gpu: &Gpu, shape: &Shape, (ctx_len, slots): (usize, usize)) -> Result<Self, GpuError> {
        let segments = ctx_len.div_ceil(SEGMENT).max(1);
        // long contexts: attention of fewer rows of a prompt at once
        let of_row = 4 * shape.heads * segments * (shape.head_dim + 2);
        let prompt_rows = if PROMPT_ROWS * of_row <= MOST_OF_PROMPT { PROMPT_ROWS } else { MAX_ROWS };
        let parts = prompt_rows * of_row;
        if parts as u64 > gpu.info().max_binding {
            return Err(GpuError::OutOfMemory(format!(
                "attention over {ctx_len} positions needs {parts} bytes at once"
            )));
        }
        let queries = shape.heads * shape.head_dim;
        let scratch = Self {
            x: gpu.storage(4 * PROMPT_ROWS * shape.d_model),
            acts: Acts::new(gpu, shape.d_model),
            attended: Acts::new(gpu, queries),
            inner: Acts::new(gpu, shape.d_ff),
            qkv: gpu.storage(4 * PROMPT_ROWS * shape.heads_in_qkv() * shape.head_dim),
            q: gpu.storage(4 * PROMPT_ROWS * queries),
            parts: gpu.storage(parts),
            prompt_rows,
            segments,
            nothing: gpu.storage(16),
            run: gpu.uniform(slots as u64 * crate::device::SLOT_BYTES),
        };
        gpu.check()?;
        Ok(scratch)
    }
}

/// Keys and values of one block, `[positions][kv_heads][head_dim / 2]` words each.
#[derive(Debug)]
pub(crate) struct LayerCache {
    pub(crate) keys: wgpu::Buffer,
    pub(crate) values: wgpu::Buffer,
}

impl LayerCache {
    pub(crate) fn new(gpu: &Gpu, shape: &Shape, positions: usize) -> Self {
        let bytes = positions * shape.kv_bytes() as usize / 2;
        Self { keys: gpu.storage(bytes), values: gpu.storage(bytes) }
    }
}

/// A bound kernel and its number of workgroups.
#[derive(Debug)]
pub(crate) struct Op {
    kernel: Kernel,
    group: wgpu::BindGroup,
    grid: Grid,
}

/// How many workgroups run, for `m` rows.
#[derive(Clone, Copy, Debug)]
enum Grid {
    /// One a row.
    Rows,
    /// So many a row.
    PerRow(u32),
    /// So many a row and segment.
    PerSegment(u32),
    /// Products: along x and y for every group of rows that share the weights; for every tile of rows.
    Weights([u32; 2], u32),
}

/// Bytes of the segments of attention up to which passes over prompts have [`PROMPT_ROWS`] rows.
const MOST_OF_PROMPT: usize = 128 << 20;

/// Most workgroups along one axis that are used.
const MOST_ALONG_X: usize = 32_768;

impl Op {
    pub(crate) fn launch(&self, gpu: &Gpu, pass: &mut wgpu::ComputePass<'_>, (rows, slot): (&PassRows, usize)) {
        let m = rows.m();
        let grid = match self.grid {
            Grid::Rows => [m as u32, 1, 1],
            Grid::PerRow(each) => [each, m as u32, 1],
            Grid::PerSegment(each) => [each, m as u32, rows.segments() as u32],
            Grid::Weights(_, tiles) if m > MAX_ROWS => [tiles, 1, m.div_ceil(TILE) as u32],
            Grid::Weights([x, y], _) => [x, y, m.div_ceil(ROWS_AT_ONCE) as u32],
        };
        gpu.dispatch(pass, self.kernel.for_rows(m), (&self.group, slot), grid);
    }
}

/// Makes the launches of a sequence.
pub(crate) struct Binder<'a> {
    pub(crate) gpu: &'a Gpu,
    pub(crate) run: &'a wgpu::Buffer,
}

impl Binder<'_> {
    fn op(&self, kernel: Kernel, dims: Dims, grid: Grid, buffers: &[&wgpu::Buffer]) -> Op {
        let dims = self.gpu.dims(dims);
        Op { kernel, group: self.gpu.bind(kernel, (&dims, self.run), buffers), grid }
    }

    /// Rows of the embedding to `x`.
    pub(crate) fn embed(&self, table: &Matrix, tokens: &wgpu::Buffer, x: &wgpu::Buffer) -> Vec<Op> {
        let op = |part: &crate::matrix::Part| {
            let a = [part.first as u32, (table.k / BLOCK) as u32, part.rows as u32, 0];
            let dims = Dims { a, ..Dims::default() };
            self.op(Kernel::Embed(part.form), dims, Grid::Rows, &[&part.codes, &part.scales, tokens, x])
        };
        table.parts.iter().map(op).collect()
    }

    pub(crate) fn norm(&self, (x, weight): (&wgpu::Buffer, &wgpu::Buffer), (d, eps): (usize, f32), out: &Acts) -> Op {
        let dims = Dims { a: [d as u32, 0, 0, 0], c: [eps, 0.0, 0.0, 0.0], ..Dims::default() };
        self.op(Kernel::Norm, dims, Grid::Rows, &[x, weight, &out.values, &out.codes, &out.scales])
    }

    /// `out[m][width]` from column `first` on `(+)= matrix · acts`.
    pub(crate) fn product(
        &self,
        (matrix, acts): (&Matrix, &Acts),
        (out, width, first): (&wgpu::Buffer, usize, usize),
        onto: bool,
    ) -> Vec<Op> {
        let op = |part: &crate::matrix::Part| {
            let groups = part.rows.div_ceil(4 * OUTPUTS);
            let x = groups.min(MOST_ALONG_X);
            let dims = Dims {
                a: [part.rows as u32, (matrix.k / BLOCK) as u32, width as u32, (first + part.first) as u32],
                b: [u32::from(onto), x as u32, 0, 0],
                ..Dims::default()
            };
            let buffers = [&part.codes, &part.scales, &acts.values, &acts.codes, &acts.scales, out];
            let grid = Grid::Weights([x as u32, groups.div_ceil(x) as u32], part.rows.div_ceil(TILE) as u32);
            self.op(Kernel::Matrix(part.form), dims, grid, &buffers)
        };
        matrix.parts.iter().map(op).collect()
    }

    fn gate_up(&self, (gate, up): (&Matrix, &Matrix), acts: &Acts, (out, width): (&Acts, usize)) -> Vec<Op> {
        let op = |(gate_part, up_part): (&crate::matrix::Part, &crate::matrix::Part)| {
            let a = [gate_part.rows as u32, (gate.k / BLOCK) as u32, width as u32, gate_part.first as u32];
            let buffers = [
                &gate_part.codes,
                &gate_part.scales,
                &up_part.codes,
                &up_part.scales,
                &acts.values,
                &acts.codes,
                &acts.scales,
                &out.values,
                &out.codes,
                &out.scales,
            ];
            let groups = (gate_part.rows / BLOCK) as u32;
            let grid = Grid::Weights([groups, 1], groups);
            self.op(Kernel::GateUp(gate_part.form), Dims { a, ..Dims::default() }, grid, &buffers)
        };
        gate.parts.iter().zip(&up.parts).map(op).collect()
    }

    /// What greedy decoding asks of logits `[m][width]`.
    pub(crate) fn stats(&self, logits: &wgpu::Buffer, width: usize, out: &wgpu::Buffer) -> Op {
        let stretches = width.div_ceil(512);
        let dims = Dims { a: [width as u32, stretches as u32, 0, 0], ..Dims::default() };
        self.op(Kernel::Stats, dims, Grid::PerRow(stretches as u32), &[logits, out])
    }

    /// The token of the largest of row 0's logits, to where the pass says.
    pub(crate) fn pick(&self, logits: &wgpu::Buffer, ids: &wgpu::Buffer, tokens: &wgpu::Buffer) -> Op {
        self.op(Kernel::Pick, Dims::default(), Grid::Rows, &[logits, ids, tokens])
    }

    /// A whole block, in place on the residual stream.
    pub(crate) fn block(
        &self,
        shape: &Shape,
        weights: &BlockWeights,
        (scratch, cache, angles): (&Scratch, &LayerCache, &wgpu::Buffer),
    ) -> Vec<Op> {
        let Shape { d_model, heads, kv_heads, head_dim, d_ff, eps } = *shape;
        let Scratch { x, acts, attended, inner, qkv, q, parts, nothing, .. } = scratch;
        let all = shape.heads_in_qkv();
        let flags = u32::from(weights.bias.is_some()) | u32::from(weights.head_norms.is_some()) << 1;
        let sizes = |last: u32| [heads as u32, kv_heads as u32, head_dim as u32, last];
        let rope = Dims { a: sizes(flags), c: [eps, 1.0 / (head_dim as f32).sqrt(), 0.0, 0.0], ..Dims::default() };
        let attend = Dims { a: sizes(scratch.segments as u32), ..Dims::default() };
        let (bias, norms) = (weights.bias.as_ref(), weights.head_norms.as_ref());
        let into_cache =
            [qkv, bias.unwrap_or(nothing), norms.unwrap_or(nothing), angles, q, &cache.keys, &cache.values];
        let joined = [parts, &attended.values, &attended.codes, &attended.scales];
        let per_head = Grid::PerRow(heads as u32);
        let mut ops = vec![self.norm((x, &weights.attn_norm), (d_model, eps), acts)];
        ops.extend(self.product((&weights.qkv, acts), (qkv, all * head_dim, 0), false));
        ops.push(self.op(Kernel::Rope, rope, Grid::PerRow(all as u32), &into_cache));
        let seen = [q, &cache.keys, &cache.values, parts];
        ops.push(self.op(Kernel::Attend, attend, Grid::PerSegment(heads as u32), &seen));
        ops.push(self.op(Kernel::Join, attend, per_head, &joined));
        ops.extend(self.product((&weights.out, attended), (x, d_model, 0), true));
        ops.push(self.norm((x, &weights.ffn_norm), (d_model, eps), acts));
        ops.extend(self.gate_up((&weights.gate, &weights.up), acts, (inner, d_ff)));
        ops.extend(self.product((&weights.down, inner), (x, d_model, 0), true));
        ops
    }
}
