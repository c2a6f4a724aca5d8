//! One transformer block: its weights, its cache, and its nine launches.
//!
//! norm · q, k, v · heads and cache · attention · joining · output · norm · gate and up · down. Where outputs are normed
//! before they are added, that norm and the next one are one launch, and so is all that adds an input for each token.
//! Invariant: bind groups are made once, with a sequence; a pass only records launches.

use draftscope_kernels::BLOCK;

use crate::buffers::{Acts, LayerCache, Scratch};
use crate::device::Gpu;
use crate::kernel::{Kernel, OUTPUTS, TILE};
use crate::layout::Dims;
use crate::matrix::{Matrix, Part};
pub(crate) use crate::op::{Grid, Op};
use crate::pass::{MAX_ROWS, SEGMENT};
use crate::style::Style;
use crate::{AdapterInfo, GpuError};

/// Sizes of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Width of the residual stream; a multiple of 32, as the other widths.
    pub d_model: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads, a divisor.
    pub kv_heads: usize,
    /// Width of a head, at most [`MAX_HEAD_DIM`].
    pub head_dim: usize,
    /// Width of the feed-forward layer.
    pub d_ff: usize,
    /// Added to the mean of squares in norms.
    pub eps: f32,
}

/// Widest head that the kernels run.
pub const MAX_HEAD_DIM: usize = 512;

impl Shape {
    fn heads_in_qkv(&self) -> usize {
        self.heads + 2 * self.kv_heads
    }

    /// Bytes of what segments of attention leave for joining, for [`MAX_ROWS`] rows.
    fn attention_bytes(&self, segments: usize) -> u64 {
        4 * (MAX_ROWS * self.heads * segments * (self.head_dim + 2)) as u64
    }

    /// Whether kernels see the keys, or the values, of so many positions in one block at once, and what attention over them
    /// needs. Memory as a whole is known only when it is allocated: the APIs do not tell a program how much is free.
    ///
    /// # Errors
    /// [`GpuError::TooLarge`] with the number of positions that fit.
    pub fn check_context(&self, info: &AdapterInfo, ctx_len: usize) -> Result<(), GpuError> {
        let (most, keys, segment) = (info.max_binding, self.kv_bytes() / 2, self.attention_bytes(1));
        let positions = (most / keys.max(1)).min(most / segment.max(1) * SEGMENT as u64);
        if ctx_len as u64 <= positions {
            return Ok(());
        }
        let attention = self.attention_bytes(ctx_len.div_ceil(SEGMENT));
        let bytes = attention.max(ctx_len as u64 * keys);
        let (what, smaller) = (format!("a context of {ctx_len} positions"), format!("--ctx {positions} or less"));
        Err(GpuError::TooLarge { what, bytes, most, smaller })
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
    /// Of queries, then of keys: `[2][head_dim]`.
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
    /// What it has besides.
    pub style: Style,
}

impl BlockWeights {
    /// Its sizes in a model of these.
    pub(crate) fn shape(&self, model: &Shape) -> Shape {
        self.style.shape.unwrap_or(*model)
    }

    /// Bytes of keys and values of a position in a model of these sizes.
    #[must_use]
    pub fn kv_bytes(&self, model: &Shape) -> u64 {
        let has_none = self.style.delta.is_some() || self.style.reads.is_some();
        if has_none { 0 } else { self.shape(model).kv_bytes() }
    }

    /// Bytes of its matrices.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let input = self.style.layer_input.iter().flat_map(|input| [&input.gate, &input.project]);
        [&self.qkv, &self.out, &self.gate, &self.up, &self.down].into_iter().chain(input).map(Matrix::bytes).sum()
    }
}

/// Widest head of which eight rows fit into a workgroup's memory; passes of more than [`MAX_ROWS`] rows have none wider.
pub(crate) const MAX_PROMPT_HEAD: usize = 256;

/// Most workgroups along one axis that are used.
const MOST_ALONG_X: usize = 32_768;

/// Makes the launches of a sequence.
pub(crate) struct Binder<'a> {
    pub(crate) gpu: &'a Gpu,
    pub(crate) run: &'a wgpu::Buffer,
}

impl Binder<'_> {
    pub(crate) fn op(&self, kernel: Kernel, dims: Dims, grid: Grid, buffers: &[&wgpu::Buffer]) -> Op {
        let dims = self.gpu.dims(dims);
        Op { kernel, group: self.gpu.bind(kernel, (&dims, self.run), buffers), grid, size: None }
    }

    /// Rows of the embedding, scaled, to `x`.
    pub(crate) fn embed(&self, (table, scale): (&Matrix, f32), tokens: &wgpu::Buffer, x: &wgpu::Buffer) -> Vec<Op> {
        let op = |part: &Part| {
            let a = [part.first as u32, (table.k / BLOCK) as u32, part.rows as u32, 0];
            let dims = Dims { a, c: [scale, 0.0, 0.0, 0.0], ..Dims::default() };
            self.op(Kernel::Embed(part.form), dims, Grid::Rows, &[&part.codes, &part.scales, tokens, x])
        };
        table.parts.iter().map(op).collect()
    }

    pub(crate) fn norm(&self, (x, weight): (&wgpu::Buffer, &wgpu::Buffer), (d, eps): (usize, f32), out: &Acts) -> Op {
        let dims = Dims { a: [d as u32, 0, 0, 0], c: [eps, 0.0, 0.0, 0.0], ..Dims::default() };
        self.op(Kernel::Norm, dims, Grid::Rows, &[x, weight, &out.values, &out.codes, &out.scales])
    }

    /// `out[m][width]` from column `first` on `(+)= matrix · acts`. Two parts of codes in different forms are one launch for
    /// few rows; of a prompt each is one.
    pub(crate) fn product(
        &self,
        (matrix, acts): (&Matrix, &Acts),
        (out, width, first): (&wgpu::Buffer, usize, usize),
        onto: bool,
    ) -> Vec<Op> {
        let dims = |part: &Part, rows: usize, of_first: usize| {
            let groups = rows.div_ceil(4 * OUTPUTS);
            let x = groups.min(MOST_ALONG_X);
            let dims = Dims {
                a: [rows as u32, (matrix.k / BLOCK) as u32, width as u32, (first + part.first) as u32],
                b: [u32::from(onto), x as u32, of_first as u32, 0],
                ..Dims::default()
            };
            (dims, [x as u32, groups.div_ceil(x) as u32])
        };
        let inputs = [&acts.values, &acts.codes, &acts.scales, out];
        let pair = match &matrix.parts[..] {
            [a, b] if a.form != b.form && !a.form.is_dense() && !b.form.is_dense() => Some((a, b)),
            _ => None,
        };
        let op = |part: &Part| {
            let (dims, grid) = dims(part, part.rows, part.rows);
            let tiles = part.rows.div_ceil(TILE) as u32;
            let grid = if pair.is_some() { Grid::Tiles(tiles) } else { Grid::Weights(grid, tiles) };
            let buffers: Vec<_> = [&part.codes, &part.scales].into_iter().chain(inputs).collect();
            self.op(Kernel::Matrix(part.form), dims, grid, &buffers).sized(part.rows, matrix.k)
        };
        let both = |(a, b): (&Part, &Part)| {
            let (dims, grid) = dims(a, a.rows + b.rows, a.rows);
            let buffers: Vec<_> =
                [&a.codes, &a.scales].into_iter().chain(inputs).chain([&b.codes, &b.scales]).collect();
            self.op(Kernel::MatrixPair(a.form, b.form), dims, Grid::FewRows(grid), &buffers)
                .sized(a.rows + b.rows, matrix.k)
        };
        pair.map(both).into_iter().chain(matrix.parts.iter().map(op)).collect()
    }

    /// Adds a layer's output, normed, to the residual stream, scales the sum, and leaves it normed by the next weight.
    fn norm_add(
        &self,
        scratch: &Scratch,
        weight: &wgpu::Buffer,
        (d, eps, scale): (usize, f32, f32),
        next: Option<&wgpu::Buffer>,
    ) -> Op {
        let a = [d as u32, u32::from(next.is_some()), 0, 0];
        let dims = Dims { a, c: [eps, scale, 0.0, 0.0], ..Dims::default() };
        let Scratch { output, x, acts: Acts { values, codes, scales }, .. } = scratch;
        let buffers = [output, weight, next.unwrap_or(weight), x, values, codes, scales];
        self.op(Kernel::NormAdd, dims, Grid::Rows, &buffers)
    }

    fn gate_up(
        &self,
        (gate, up, gelu): (&Matrix, &Matrix, bool),
        acts: &Acts,
        (out, width): (&Acts, usize),
    ) -> Vec<Op> {
        let op = |(gate_part, up_part): (&Part, &Part)| {
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
            let dims = Dims { a, b: [u32::from(gelu), 0, 0, 0], ..Dims::default() };
            self.op(Kernel::GateUp(gate_part.form), dims, grid, &buffers).sized(2 * gate_part.rows, gate.k)
        };
        gate.parts.iter().zip(&up.parts).map(op).collect()
    }

    /// What greedy decoding asks of logits `[m][width]`.
    pub(crate) fn stats(&self, logits: &wgpu::Buffer, width: usize, out: &wgpu::Buffer) -> Op {
        let stretches = width.div_ceil(512);
        let dims = Dims { a: [width as u32, stretches as u32, 0, 0], ..Dims::default() };
        self.op(Kernel::Stats, dims, Grid::PerRow(stretches as u32), &[logits, out])
    }

    /// The best of the same logits, and those of the tokens of the pass.
    pub(crate) fn best(
        &self,
        (logits, stats): (&wgpu::Buffer, &wgpu::Buffer),
        width: usize,
        (tokens, out): (&wgpu::Buffer, &wgpu::Buffer),
    ) -> Op {
        let dims = Dims { a: [width as u32, width.div_ceil(512) as u32, 0, 0], ..Dims::default() };
        self.op(Kernel::Best, dims, Grid::Rows, &[logits, stats, tokens, out])
    }

    /// Reading of a buffer of so many bytes by so many workgroups.
    pub(crate) fn stream(&self, memory: &wgpu::Buffer, bytes: usize, (workgroups, sums): (u32, &wgpu::Buffer)) -> Op {
        let dims = Dims { a: [(bytes / 16) as u32, 256 * workgroups, 0, 0], ..Dims::default() };
        self.op(Kernel::Stream, dims, Grid::Once(workgroups), &[memory, sums])
    }

    /// Caps logits `[m][width]` in place.
    pub(crate) fn cap(&self, (logits, width): (&wgpu::Buffer, usize), cap: f32) -> Op {
        let dims = Dims { a: [width as u32, 0, 0, 0], c: [cap, 0.0, 0.0, 0.0], ..Dims::default() };
        self.op(Kernel::Cap, dims, Grid::PerRow(width.div_ceil(512) as u32), &[logits])
    }

    /// The token of the largest of row 0's logits, by their statistics, to where the pass says.
    pub(crate) fn pick(&self, stats: &wgpu::Buffer, ids: &wgpu::Buffer, tokens: &wgpu::Buffer) -> Op {
        self.op(Kernel::Pick, Dims::default(), Grid::Rows, &[stats, ids, tokens])
    }

    /// A whole block, in place on the residual stream.
    pub(crate) fn block(
        &self,
        shape: &Shape,
        weights: &BlockWeights,
        memory: (&Scratch, &LayerCache, &wgpu::Buffer),
    ) -> Vec<Op> {
        self.block_between(shape, weights, memory, (false, None))
    }

    /// The same, between blocks: `entered`, if the block before left the normed input, and the weight of the norm to leave
    /// it for the next block, which a block does that norms its outputs.
    pub(crate) fn block_between(
        &self,
        model: &Shape,
        weights: &BlockWeights,
        (scratch, cache, angles): (&Scratch, &LayerCache, &wgpu::Buffer),
        (entered, next): (bool, Option<&wgpu::Buffer>),
    ) -> Vec<Op> {
        let Shape { d_model, d_ff, eps, .. } = weights.shape(model);
        let Scratch { x, acts, attended, inner, output, .. } = scratch;
        let (norms, onto) = (weights.style.post_norms.as_ref(), weights.style.post_norms.is_none());
        let to = if onto { x } else { output };
        let mut ops = Vec::new();
        if !entered {
            ops.push(self.norm((x, &weights.attn_norm), (d_model, eps), acts));
        }
        ops.extend(match (&weights.style.delta, &cache.delta) {
            (Some(delta), Some(memory)) => self.delta((delta, &weights.qkv, eps), (scratch, memory)),
            _ => self.attention(&weights.shape(model), weights, (scratch, cache, angles)),
        });
        ops.extend(self.product((&weights.out, attended), (to, d_model, 0), onto));
        ops.push(match norms {
            Some([post, _]) => self.norm_add(scratch, post, (d_model, eps, 1.0), Some(&weights.ffn_norm)),
            None => self.norm((x, &weights.ffn_norm), (d_model, eps), acts),
        });
        ops.extend(self.gate_up((&weights.gate, &weights.up, weights.style.gelu), acts, (inner, d_ff)));
        ops.extend(self.product((&weights.down, inner), (to, d_model, 0), onto));
        if let Some([_, post]) = norms {
            let scale = weights.style.output_scale.unwrap_or(1.0);
            ops.push(match &weights.style.layer_input {
                None => self.norm_add(scratch, post, (d_model, eps, scale), next),
                Some(input) => self.layer_input(input, scratch, (post, next), (d_model, eps, scale)),
            });
        }
        ops
    }

    /// From normed rows to what the output projection reads.
    fn attention(
        &self,
        shape: &Shape,
        weights: &BlockWeights,
        (scratch, cache, angles): (&Scratch, &LayerCache, &wgpu::Buffer),
    ) -> Vec<Op> {
        let Shape { heads, kv_heads, head_dim, eps, .. } = *shape;
        let Scratch { acts, attended, qkv, q, parts, nothing, .. } = scratch;
        let (style, width) = (&weights.style, weights.qkv.rows());
        let all = if style.reads.is_some() { heads } else { shape.heads_in_qkv() };
        let flags = u32::from(weights.bias.is_some()) | u32::from(weights.head_norms.is_some()) << 1;
        let flags = flags | u32::from(style.norms_values) << 2;
        let sizes = |last: u32| [heads as u32, kv_heads as u32, head_dim as u32, last];
        let query_scale = style.query_scale.unwrap_or(1.0 / (head_dim as f32).sqrt());
        let rope = Dims {
            a: sizes(flags),
            b: [(width / head_dim) as u32, style.rotary.unwrap_or(head_dim) as u32, 0, 0],
            c: [eps, query_scale, 0.0, 0.0],
        };
        let gates = [u32::from(style.gated), width as u32, (all * head_dim) as u32];
        let attend = Dims {
            a: sizes(scratch.segments as u32),
            b: [style.window.unwrap_or(0) as u32, gates[0], gates[1], gates[2]],
            c: [style.score_cap.unwrap_or(0.0), 0.0, 0.0, 0.0],
        };
        let (bias, norms) = (weights.bias.as_ref(), weights.head_norms.as_ref());
        let angles = style.angles.as_ref().unwrap_or(angles);
        let into_cache =
            [qkv, bias.unwrap_or(nothing), norms.unwrap_or(nothing), angles, q, &cache.keys, &cache.values];
        let joined = [parts, qkv, &attended.values, &attended.codes, &attended.scales];
        let mut ops = self.product((&weights.qkv, acts), (qkv, width, 0), false);
        ops.push(self.op(Kernel::Rope, rope, Grid::PerRow(all as u32), &into_cache));
        let seen = [q, &cache.keys, &cache.values, parts];
        ops.push(self.op(Kernel::Attend, attend, Grid::PerSegment(heads as u32), &seen));
        ops.push(self.op(Kernel::Join, attend, Grid::Heads((heads / (BLOCK / head_dim).max(1)) as u32), &joined));
        if (BLOCK..=MAX_PROMPT_HEAD).contains(&head_dim) {
            let [_, rest @ ..] = joined;
            let seen: Vec<_> = seen[..3].iter().copied().chain(rest).collect();
            ops.push(self.op(Kernel::AttendPrompt, attend, Grid::PromptHeads(heads as u32), &seen));
        }
        ops
    }
}
