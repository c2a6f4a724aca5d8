//! Memory needs of a model of DeepSeek-V3's layout, and loading the draft modules in its files.

use std::ops::Range;

use draftscope_kernels::{BLOCK, Encoding, LANES};

use crate::model::ModelError;
use crate::model::drafters::core::{NextnTarget, check_modules, nextn_modules};
use crate::model::families::deepseek::DeepSeekWeights;
use crate::model::families::deepseek::config::{DeepSeekConfig, LatentShape};
use crate::model::families::deepseek::names::article;
use crate::model::families::deepseek::reader::Reader;
use crate::model::files::{LoadedTensor, MatrixForm};
use crate::model::interfaces::{CandleFamily, CandleTarget, LoadContext, Modules, NoSharing, SharedWeights};
use crate::model::nn::Tensors;
use crate::protocol::MemoryAccount;

/// Matrices that are folded into queries and results: both in one tensor, or split.
const FOLDED: [&str; 3] = ["attn_kv_b", "attn_k_b", "attn_v_b"];

/// Bytes that a folded matrix takes: f32 on candle; on the native kernels as stored, but keys of quantised tensors that
/// have both are f32 too, since they are transposed, and heads are padded.
fn folded_bytes(part: &str, tensor: &LoadedTensor<'_>, a: &LatentShape, form: MatrixForm) -> u64 {
    let (Some(encoding), MatrixForm::Tiles) = (tensor.encoding, form) else {
        return tensor.bytes(form) + tensor.more_in_f32(form);
    };
    let heads = |encoding: Encoding, out: usize, input: usize| {
        let whole = out.is_multiple_of(LANES) && input.is_multiple_of(BLOCK);
        let form = if whole { encoding.form() } else { Encoding::F32.form() };
        let tiles = a.heads.saturating_mul(out.div_ceil(LANES));
        tiles.saturating_mul(form.tile_bytes(input.next_multiple_of(BLOCK))) as u64
    };
    match part {
        "attn_k_b" => heads(encoding, a.rank, a.plain),
        "attn_v_b" => heads(encoding, a.value, a.rank),
        _ => {
            let of_keys = if encoding.form().is_dense() { encoding } else { Encoding::F32 };
            heads(of_keys, a.rank, a.plain) + heads(encoding, a.value, a.rank)
        }
    }
}

/// Adds what folded matrices take more than in the form of others, trimmed heads, and modules' caches.
pub(super) fn memory(
    config: &DeepSeekConfig,
    context: &LoadContext<'_>,
    account: MemoryAccount,
    form: MatrixForm,
) -> MemoryAccount {
    let (latent, source, c) = (&config.latent, context.source, &config.transformer);
    let modules = check_modules(source, (c, latent.modules)).ok().filter(|_| context.loads_modules()).unwrap_or(0);
    let more = |layers: Range<usize>| {
        let parts = layers.flat_map(|layer| FOLDED.map(|part| (part, format!("blk.{layer}.{part}.weight"))));
        let bytes = |(part, name): (&str, String)| {
            let tensor = source.loaded_tensor(&name)?;
            Some(folded_bytes(part, &tensor, &latent.attention, form) as i64 - tensor.bytes(form) as i64)
        };
        parts.filter_map(bytes).sum::<i64>()
    };
    // rows of the head that a trimmed one copies, in f32
    let trimmed = context.draft_vocab().ok().flatten().map_or(0, |vocab| 4 * (vocab.len() * c.d_model) as u64);
    MemoryAccount {
        target_weights: account.target_weights.saturating_add_signed(more(0..c.layers)),
        drafter_weights: account.drafter_weights.saturating_add_signed(more(c.layers..c.layers + modules))
            + trimmed * modules as u64,
        drafter_kv: account.target_kv / c.layers as u64 * modules as u64,
        ..account
    }
}

impl CandleFamily for DeepSeekWeights {
    fn own_modules(target: &CandleTarget<Self>, context: &LoadContext<'_>) -> Option<Result<Modules, ModelError>> {
        let Self { trunk, latent, rope } = target.weights.as_ref();
        let own = NextnTarget { trunk, rope, announced: latent.modules, dtype: &target.spec.dtype };
        let block = |tensors: &Tensors<'_>, layer| Ok(Box::new(Reader { tensors, latent }.layer(layer)?) as _);
        Some(nextn_modules(context, &own, &block))
    }

    fn shared(target: &CandleTarget<Self>) -> Result<SharedWeights<'_>, NoSharing> {
        Err(NoSharing {
            family: article(&target.weights.trunk.config),
            instead_of_head: "start without --draft-model, and its own modules draft",
            instead_of_module: "brings its own, so start without --mtp",
        })
    }
}
