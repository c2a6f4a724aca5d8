//! What whole passes take on this backend beside weights and cache, for the account of a model's memory.
//!
//! Invariant: the figures are those of the passes themselves.

use super::cache::AHEAD;
use super::layer::BlockShape;
use super::llama::prompt_rows;
use crate::nn::TransformerConfig;
use crate::plan::{Delta, Feed, Keys, Latent, LatentQueries, Layer, Mixer, Plan};
use draftscope_kernels::{BLOCK, HEAD_CHUNK, HEAD_EXTRA, HEAD_SEGMENT, LANES, MAX_ROWS, prompt_scratch_bytes};

const F32: usize = size_of::<f32>();

/// Tokens of a prompt whose hidden states are in memory at once: as many as the engine reads without a look at the user.
pub(crate) const PROMPT_BLOCK: usize = 512;

/// What feed-forward parts keep of a row: the widest numbers of any layer.
#[derive(Clone, Copy, Default)]
struct FeedWidths {
    /// Width of a gated layer that every row runs.
    gated: usize,
    /// Gate and up of each of a row's experts, their sum, and the numbers of the router.
    experts: usize,
    /// What experts read.
    read: usize,
    /// What routers read, which is never codes.
    routed: usize,
}

impl FeedWidths {
    fn of(layers: &[Layer]) -> Self {
        layers.iter().fold(Self::default(), |most, layer| {
            let own = Self::of_layer(layer);
            Self {
                gated: own.gated.max(most.gated),
                experts: own.experts.max(most.experts),
                read: own.read.max(most.read),
                routed: own.routed.max(most.routed),
            }
        })
    }

    fn of_layer(layer: &Layer) -> Self {
        let experts = match &layer.feed {
            Feed::Dense(gated) => return Self { gated: gated.width(), ..Self::default() },
            Feed::Experts(experts) => experts,
        };
        let shared = experts.shared.as_ref().map_or(0, |shared| shared.feed.width());
        let beside = experts.beside.as_ref().map_or(0, |beside| beside.dense.width());
        let (d, width, used) = (experts.sizes.d, experts.sizes.width, experts.used);
        // beside a dense layer rows exist in three forms, and results twice
        let more = if experts.beside.is_some() { d } else { 0 };
        Self {
            gated: shared.max(beside),
            experts: used * 2 * width + d + experts.sizes.count + more,
            read: used * (d + width) + more,
            routed: d,
        }
    }
}

/// Bytes of a target's passes beside all states: the angles of all positions, and the working memory of a prompt that fills
/// the context. `kept`: bytes of states of rows that may be rolled back, which are freed when a prompt begins; what only
/// its rows take is needed then. `dense`: matrices read activations as f32, not as codes.
pub(crate) fn target_passes(
    (config, plan): (&TransformerConfig, &Plan),
    (ctx_len, threads): (usize, usize),
    (kept, dense): (u64, bool),
) -> u64 {
    let shape = BlockShape::of(config).widest(plan);
    // what a step gives waits for its norm
    let norms_after = plan.layers.iter().any(|layer| layer.mix.after.is_some() || layer.fed.after.is_some());
    let given = if norms_after { prompt_rows(&shape, ctx_len) * shape.d_model * F32 } else { 0 };
    let angles = plan.angles.iter().map(|table| angles(table.width, ctx_len)).sum();
    let states = PROMPT_BLOCK.min(ctx_len) * shape.d_model * F32;
    let logits = config.vocab * F32;
    let widest = plan.attentions().map(|of| of.key_width).max().unwrap_or(0);
    let others = given + threads * prompt_scratch_bytes(widest);
    // slices of all layers, and the rows that they come from
    let inputs = plan.embedding.by_layer.as_ref().map_or(0, |of| of.table.columns);
    let others = others + prompt_rows(&shape, ctx_len) * 2 * inputs * F32;
    let latents = latents(plan.latents().next(), prompt_rows(&shape, ctx_len), (ctx_len, dense));
    let latents = latents + latent_threads(plan.latents().next(), prompt_rows(&shape, ctx_len));
    let of_prompt = prompt_rows(&shape, ctx_len) * MixerWidths::of(&plan.layers).other * F32;
    let all = (states + logits + others + latents) as u64 + pass((&shape, &plan.layers), (ctx_len, angles), dense);
    all - kept.min(of_prompt as u64)
}

/// Bytes of the passes of a draft module in the target's files, which has angles and rows of its own.
pub(crate) fn module_passes(
    (config, plan): (&TransformerConfig, &Plan),
    layer: &Layer,
    (ctx_len, dense): (usize, bool),
) -> u64 {
    let shape = BlockShape::of(config).widest(plan);
    // the rows of embedding and state, as numbers and as what the projection reads
    let rows = prompt_rows(&shape, ctx_len) * shape.d_model * (F32 + 2 * F32);
    let rotated = plan.angles.first().map_or(shape.head_dim, |angles| angles.width);
    let latents = latents(layer.latent(), prompt_rows(&shape, ctx_len), (ctx_len, dense));
    pass((&shape, std::slice::from_ref(layer)), (ctx_len, angles(rotated, ctx_len)), dense) + (rows + latents) as u64
}

/// Bytes that latent attention keeps: queries in all forms, what is cached, answers, and partial sums.
fn latents(of: Option<&Latent>, rows: usize, (ctx_len, dense): (usize, bool)) -> usize {
    let Some(of) = of else { return 0 };
    let (row, rank) = (of.rank + of.rotated, of.heads * of.rank);
    let squeezed = match &of.queries {
        LatentQueries::Direct(_) => 0,
        LatentQueries::Squeezed(down, ..) => down.rows,
    };
    let queries = of.heads * (of.plain + of.rotated);
    let values = of.heads * of.value;
    let of_heads = queries.max(rank).max(values); // tiles of products of heads
    let numbers = 2 * queries + of.heads * of.plain + rank + of.heads * row + row + 2 * values + of_heads;
    let block = if dense { BLOCK * F32 } else { BLOCK + 4 * F32 };
    let read = (squeezed + values) / BLOCK * block + folded_read(of, dense);
    let few = MAX_ROWS.min(ctx_len) * ctx_len.div_ceil(HEAD_CHUNK);
    let partials = rows.min(ctx_len).max(few) * of.heads * (of.rank + HEAD_EXTRA);
    rows.min(ctx_len) * (numbers * F32 + read) + partials * F32
}

/// Bytes of what the folded matrices read of a row: in f32, and as codes where their blocks and tiles are whole.
fn folded_read(of: &Latent, dense: bool) -> usize {
    let bytes = |in_f32: bool, block: usize| {
        let folded = [&of.to_keys, &of.to_values].into_iter().filter(|folded| {
            let whole = folded.out.is_multiple_of(LANES) && folded.columns.is_multiple_of(BLOCK);
            (dense || folded.transposed || !whole) == in_f32
        });
        folded.map(|folded| folded.heads * folded.columns.div_ceil(BLOCK) * block).max().unwrap_or(0)
    };
    bytes(true, BLOCK * F32) + bytes(false, BLOCK + 4 * F32)
}

/// Bytes that threads keep of latent attention: queries, weights and sums of the half of the rows that runs at once.
fn latent_threads(of: Option<&Latent>, rows: usize) -> usize {
    let each = |of: &Latent| of.heads * (2 * of.rank + of.rotated + HEAD_SEGMENT + HEAD_EXTRA) * F32;
    of.map_or(0, |of| rows.div_ceil(2) * each(of))
}

/// Bytes of the caches of some layers for a position.
pub(crate) fn cache_bytes<'a>(layers: impl Iterator<Item = &'a Layer>) -> u64 {
    layers.map(|layer| layer.cached_values() * if layer.latent().is_some() { 4 } else { 2 }).sum()
}

/// Bytes of a table of cosines and sines that rotates so many values of a head.
fn angles(rotated: usize, ctx_len: usize) -> usize {
    (ctx_len + AHEAD) * rotated.next_multiple_of(2 * LANES) * F32
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
                    let own = if matches!(attention.keys, Keys::Own(_)) { attention.kv_heads } else { 0 };
                    Self { given: queries + gates + 2 * own * attention.key_width, answers: queries, other: 0 }
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

fn pass((shape, layers): (&BlockShape, &[Layer]), (ctx_len, angles): (usize, usize), dense: bool) -> u64 {
    let (mixer, feed) = (MixerWidths::of(layers), FeedWidths::of(layers));
    let rows = prompt_rows(shape, ctx_len);
    // residual stream, mixer, gate and up; then what matrices read: numbers, or codes with their scales
    let numbers = shape.d_model + mixer.given + mixer.other + 2 * feed.gated + feed.experts;
    let block = if dense { BLOCK * F32 } else { BLOCK + 4 * F32 };
    let read = (shape.d_model + mixer.answers + feed.gated + feed.read) / BLOCK * block;
    let routed = if dense { 0 } else { feed.routed * F32 };
    (angles + rows * (numbers * F32 + read + routed + shape.partial_bytes(ctx_len))) as u64
}
