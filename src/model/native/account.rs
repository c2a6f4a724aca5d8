//! What whole passes take on this backend beside weights and cache, for the account of a model's memory.
//!
//! Invariant: the figures are those of the passes themselves.

use super::layer::BlockShape;
use super::llama::prompt_rows;
use crate::model::nn::TransformerConfig;
use crate::model::plan::{Delta, Layer, Mixer, Plan};
use draftscope_kernels::{BLOCK, LANES, prompt_scratch_bytes};

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
    let angles = plan.angles.iter().map(|table| angles(table.width, ctx_len)).sum();
    let states = PROMPT_BLOCK.min(ctx_len) * shape.d_model * F32;
    let logits = config.vocab * F32;
    let others = given + threads * prompt_scratch_bytes(shape.head_dim);
    (states + logits + others) as u64 + pass((&shape, MixerWidths::of(&plan.layers)), (ctx_len, angles), dense)
}

/// Bytes of the passes of a draft module in the target's files, which has angles and rows of its own.
pub(in crate::model) fn module_passes(
    (config, plan): (&TransformerConfig, &Plan),
    layer: &Layer,
    (ctx_len, dense): (usize, bool),
) -> u64 {
    let shape = BlockShape::of(config);
    // the rows of embedding and state, as numbers and as what the projection reads
    let rows = prompt_rows(&shape, ctx_len) * shape.d_model * (F32 + 2 * F32);
    let rotated = plan.angles.first().map_or(shape.head_dim, |angles| angles.width);
    let widths = MixerWidths::of(std::slice::from_ref(layer));
    pass((&shape, widths), (ctx_len, angles(rotated, ctx_len)), dense) + rows as u64
}

/// Bytes of a table of cosines and sines that rotates so many values of a head.
fn angles(rotated: usize, ctx_len: usize) -> usize {
    ctx_len * rotated.next_multiple_of(2 * LANES) * F32
}

/// The widest numbers of a row in the mixers of some layers.
#[derive(Clone, Copy, Default)]
struct MixerWidths {
    /// What its first matrices give.
    given: usize,
    /// What its output projection reads.
    answers: usize,
    /// What else it holds.
    other: usize,
}

impl MixerWidths {
    fn of(layers: &[Layer]) -> Self {
        layers.iter().fold(Self::default(), |most, layer| {
            let own = match &layer.mixer {
                Mixer::Attention(attention) => {
                    let queries = attention.heads * attention.key_width;
                    let gates = if attention.gate.is_some() { queries } else { 0 };
                    Self {
                        given: queries + gates + 2 * attention.kv_heads * attention.key_width,
                        answers: queries,
                        other: 0,
                    }
                }
                // as tiles, as rows, and the answers by heads and by rows
                Mixer::Delta(Delta { shape, .. }) => {
                    let (answers, heads) = (shape.value_width(), 2 * shape.value_heads.next_multiple_of(LANES));
                    let given = shape.channels() + answers + heads;
                    Self { given, answers, other: given + 2 * answers }
                }
                Mixer::Latent(_) => Self::default(),
            };
            Self {
                given: most.given.max(own.given),
                answers: most.answers.max(own.answers),
                other: most.other.max(own.other),
            }
        })
    }
}

fn pass((shape, mixer): (&BlockShape, MixerWidths), (ctx_len, angles): (usize, usize), dense: bool) -> u64 {
    let rows = prompt_rows(shape, ctx_len);
    // residual stream, mixer, gate and up; then what matrices read: numbers, or codes with their scales
    let numbers = shape.d_model + mixer.given + mixer.other + 2 * shape.d_ff;
    let block = if dense { BLOCK * F32 } else { BLOCK + 4 * F32 };
    let read = (shape.d_model + mixer.answers + shape.d_ff) / BLOCK * block;
    (angles + rows * (numbers * F32 + read + shape.partial_bytes(ctx_len))) as u64
}
