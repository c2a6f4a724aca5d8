//! What whole passes take on this backend beside weights and cache, for the account of a model's memory.
//!
//! Invariant: the figures are those of the passes themselves.

use super::layer::BlockShape;
use super::llama::prompt_rows;
use crate::model::nn::TransformerConfig;
use crate::model::plan::Plan;
use draftscope_kernels::{BLOCK, prompt_scratch_bytes};

const F32: usize = size_of::<f32>();

/// Tokens of a prompt whose hidden states are in memory at once: as many as the engine reads without a look at the user.
pub(in crate::model) const PROMPT_BLOCK: usize = 512;

/// Bytes of a target's passes: the angles of all positions, and the working memory of a prompt that fills the context.
/// `dense`: matrices read activations as f32, not as codes.
pub(in crate::model) fn target_passes(
    (config, plan): (&TransformerConfig, &Plan),
    (ctx_len, threads): (usize, usize),
    dense: bool,
) -> u64 {
    let shape = BlockShape::of(config);
    // what a step gives waits for its norm
    let norms_after = plan.layers.iter().any(|layer| layer.mix.after.is_some() || layer.fed.after.is_some());
    let given = if norms_after { prompt_rows(&shape, ctx_len) * shape.d_model * F32 } else { 0 };
    let more_angles = (plan.angles.len() - 1) * angles(&shape, ctx_len);
    let states = PROMPT_BLOCK.min(ctx_len) * shape.d_model * F32;
    let logits = config.vocab * F32;
    let others = given + more_angles + threads * prompt_scratch_bytes(shape.head_dim);
    (states + logits + others) as u64 + pass(&shape, ctx_len, dense)
}

/// Bytes of the passes of a draft module in the target's files, which has angles and rows of its own.
pub(in crate::model) fn module_passes(config: &TransformerConfig, ctx_len: usize, dense: bool) -> u64 {
    let shape = BlockShape::of(config);
    // the rows of embedding and state, as numbers and as what the projection reads
    let rows = prompt_rows(&shape, ctx_len) * shape.d_model * (F32 + 2 * F32);
    pass(&shape, ctx_len, dense) + rows as u64
}

/// Bytes of a table of cosines and sines.
fn angles(shape: &BlockShape, ctx_len: usize) -> usize {
    ctx_len * shape.head_dim * F32
}

fn pass(shape: &BlockShape, ctx_len: usize, dense: bool) -> u64 {
    let (queries, kv) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
    let angles = angles(shape, ctx_len);
    let rows = prompt_rows(shape, ctx_len);
    // residual stream, heads, gate and up; then what matrices read: numbers, or codes with their scales
    let numbers = shape.d_model + queries + 2 * kv + 2 * shape.d_ff;
    let block = if dense { BLOCK * F32 } else { BLOCK + 4 * F32 };
    let read = (shape.d_model + queries + shape.d_ff) / BLOCK * block;
    (angles + rows * (numbers * F32 + read + shape.partial_bytes(ctx_len))) as u64
}
