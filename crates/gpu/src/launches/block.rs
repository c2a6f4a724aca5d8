//! One transformer block: its weights, its cache, and its nine launches.
//!
//! norm · q, k, v · heads and cache · attention · joining · output · norm · gate and up · down. Where outputs are normed
//! or scaled before they are added, that and the next norm are one launch, and so is all that adds an input for each token.
//! Invariant: bind groups are made once, with a sequence; a pass only records launches.

use draftscope_kernels::BLOCK;

use super::binder::Binder;
use super::op::{Grid, Op};
use crate::kernels::{Dims, Kernel};
use crate::memory::{Acts, LayerCache, Scratch};
use crate::weights::{BlockWeights, MAX_PROMPT_HEAD, Matrix, Part, Shape};

/// What happens to a layer's output before it is added.
#[derive(Clone, Copy)]
enum Output<'a> {
    Normed(&'a wgpu::Buffer),
    Times(f32),
}

/// The same of attention and of the feed-forward layer; `None` if both are just added.
fn outputs(weights: &BlockWeights) -> Option<[Output<'_>; 2]> {
    let factors = || weights.style.added.map(|factors| factors.map(Output::Times));
    let norms = weights.style.post_norms.as_ref();
    norms.map(|norms| norms.each_ref().map(Output::Normed)).or_else(factors)
}

impl Binder<'_> {
    /// Adds a layer's output, normed or with a factor, to the residual stream, scales the sum, and leaves it normed by the
    /// next weight.
    fn add(
        &self,
        scratch: &Scratch,
        output_as: Output<'_>,
        (d, eps, scale): (usize, f32, f32),
        next: Option<&wgpu::Buffer>,
    ) -> Op {
        let (weight, has_factor, factor) = match output_as {
            Output::Normed(weight) => (weight, 0, 1.0),
            Output::Times(factor) => (&scratch.nothing, 1, factor),
        };
        let a = [d as u32, u32::from(next.is_some()), has_factor, 0];
        let dims = Dims { a, c: [eps, scale, factor, 0.0], ..Dims::default() };
        let Scratch { output, x, acts: Acts { values, codes, scales }, .. } = scratch;
        let buffers = [output, weight, next.unwrap_or(weight), x, values, codes, scales];
        self.op(Kernel::NormAdd, dims, Grid::Rows, &buffers)
    }

    pub(super) fn gate_up(
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
    /// it for the next block, which a block does that [adds its outputs apart](BlockWeights::adds_apart).
    pub(crate) fn block_between(
        &self,
        model: &Shape,
        weights: &BlockWeights,
        (scratch, cache, angles): (&Scratch, &LayerCache, &wgpu::Buffer),
        (entered, next): (bool, Option<&wgpu::Buffer>),
    ) -> Vec<Op> {
        let Shape { d_model, d_ff, eps, .. } = weights.shape(model);
        let Scratch { x, acts, attended, inner, output, .. } = scratch;
        let apart = outputs(weights);
        let (onto, ffn_norm) = (apart.is_none(), weights.ffn_norm.as_ref());
        let to = if onto { x } else { output };
        let mut ops = Vec::new();
        if !entered {
            ops.push(self.input((x, weights.attn_norm.as_ref()), (d_model, eps), acts));
        }
        ops.extend(match (&weights.style.delta, &cache.delta) {
            (Some(delta), Some(memory)) => self.delta((delta, &weights.qkv, eps), (scratch, memory)),
            _ => self.attention(&weights.shape(model), weights, (scratch, cache, angles)),
        });
        ops.extend(self.product((&weights.out, attended), (to, d_model, 0), onto));
        ops.extend(apart.map(|[of_mixer, _]| self.add(scratch, of_mixer, (d_model, eps, 1.0), ffn_norm)));
        if onto || ffn_norm.is_none() {
            ops.push(self.input((x, ffn_norm), (d_model, eps), acts));
        }
        match (&weights.experts, &weights.dense, &scratch.experts) {
            (Some(experts), dense, Some(memory)) => {
                let width = (d_model, weights.style.gelu);
                ops.extend(self.experts((experts, dense.as_ref()), (scratch, memory), width));
            }
            (_, Some(dense), _) => {
                ops.extend(self.gate_up((&dense.gate, &dense.up, weights.style.gelu), acts, (inner, d_ff)));
                ops.extend(self.product((&dense.down, inner), (to, d_model, 0), onto));
            }
            _ => {}
        }
        if let Some([_, of_feed]) = apart {
            let scale = weights.style.output_scale.unwrap_or(1.0);
            ops.push(match (&weights.style.layer_input, of_feed) {
                (Some(input), Output::Normed(post)) => {
                    self.layer_input(input, scratch, (post, next), (d_model, eps, scale))
                }
                _ => self.add(scratch, of_feed, (d_model, eps, scale), next),
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
        if let Some([of_queries, of_keys]) = &style.width_norms {
            let [queries, keys] = [heads, kv_heads].map(|heads| heads * head_dim);
            ops.push(self.norm_width((qkv, of_queries), (width, 0, queries), eps));
            ops.push(self.norm_width((qkv, of_keys), (width, queries, keys), eps));
        }
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
