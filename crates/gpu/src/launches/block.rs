//! One transformer block: its weights, its cache, and its nine launches.
//!
//! norm · q, k, v · heads and cache · attention · joining · output · norm · gate and up · down. Where outputs are normed
//! before they are added, that norm and the next one are one launch, and so is all that adds an input for each token.
//! Invariant: bind groups are made once, with a sequence; a pass only records launches.

use draftscope_kernels::BLOCK;

use super::binder::Binder;
use super::op::{Grid, Op};
use crate::kernels::{Dims, Kernel};
use crate::memory::{Acts, LayerCache, Scratch};
use crate::weights::{BlockWeights, MAX_PROMPT_HEAD, Matrix, Part, Shape};

impl Binder<'_> {
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
