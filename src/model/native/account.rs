//! What a model takes in memory on this backend, from headers alone: for "does it fit" and `models info`.
//!
//! Invariant: the figures are those of the loaders and passes themselves. Rows fill up tiles of 16, and every type takes
//! what its form takes.

use super::layer::BlockShape;
use super::llama::prompt_rows;
use crate::model::files::{GgufFile, ModelFiles};
use crate::model::nn::TransformerConfig;
use draftscope_kernels::{BLOCK, Encoding, LANES, prompt_scratch_bytes};

/// Bytes of the weights of a model and of so many of its own draft modules, loaded as stored; `whole`: for whole passes.
pub(in crate::model) fn weight_bytes(
    source: &ModelFiles,
    (config, modules): (&TransformerConfig, usize),
    whole: bool,
) -> u64 {
    let blocks = config.layers + modules;
    let all = match source {
        ModelFiles::Gguf(gguf) => packed_bytes(gguf, blocks),
        ModelFiles::Folder(folder) => folder.stored_bytes(blocks),
    };
    // a module's projection, [d, 2 d], is cut in halves, which are f32
    let projections = (config.layers..blocks).filter_map(|block| {
        let stored = source.bytes_of(&format!("blk.{block}.nextn.eh_proj.weight"))?;
        Some(((2 * config.d_model * config.d_model * size_of::<f32>()) as u64).saturating_sub(stored))
    });
    all + if whole { projections.sum() } else { 0 }
}

fn packed_bytes(gguf: &GgufFile, blocks: usize) -> u64 {
    let block = |name: &str| name.strip_prefix("blk.")?.split('.').next()?.parse::<usize>().ok();
    let loaded = gguf.tensors().filter(|(name, ..)| block(name).is_none_or(|block| block < blocks));
    let bytes = |(name, shape, encoding): (&str, &[usize], Option<Encoding>)| match (shape, encoding) {
        (&[ref outer @ .., rows, k], Some(encoding)) => {
            let tiles = outer.iter().product::<usize>() * rows.div_ceil(LANES);
            (tiles * encoding.form().tile_bytes(k)) as u64
        }
        ([numbers], _) => (numbers * size_of::<f32>()) as u64,
        (_, _) => gguf.bytes_of(name).unwrap_or(0),
    };
    loaded.map(bytes).sum()
}

/// Tokens of a prompt whose hidden states are in memory at once: as many as the engine reads without a look at the user.
const PROMPT_BLOCK: usize = 512;

/// Bytes that whole passes need beside weights and cache: the angles of all positions, and the working memory of a prompt
/// that fills the context. `dense`: matrices read activations as f32, not as codes.
pub(in crate::model) fn working_bytes(
    config: &TransformerConfig,
    (ctx_len, threads): (usize, usize),
    dense: bool,
) -> u64 {
    const F32: usize = size_of::<f32>();
    let shape = BlockShape::of(config);
    let (queries, kv) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
    let angles = ctx_len * shape.head_dim * F32;
    let rows = prompt_rows(&shape, ctx_len);
    // residual stream, heads, gate and up; then what matrices read: numbers, or codes with their scales
    let numbers = shape.d_model + queries + 2 * kv + 2 * shape.d_ff;
    let block = if dense { BLOCK * F32 } else { BLOCK + 4 * F32 };
    let read = (shape.d_model + queries + shape.d_ff) / BLOCK * block;
    let pass = rows * (numbers * F32 + read + shape.partial_bytes(ctx_len));
    let states = PROMPT_BLOCK.min(ctx_len) * shape.d_model * F32;
    let logits = config.vocab * F32;
    (angles + pass + states + logits + threads * prompt_scratch_bytes(shape.head_dim)) as u64
}
