//! Memory needs of a model of DeepSeek-V3's layout, and loading the draft modules in its files.

use crate::model::ModelError;
use crate::model::drafters::core::{self, CandleMtp};
use crate::model::families::deepseek::DeepSeekWeights;
use crate::model::families::deepseek::config::DeepSeekConfig;
use crate::model::families::deepseek::family::article;
use crate::model::families::deepseek::module::{check_modules, load_modules};
use crate::model::interfaces::{CandleFamily, CandleTarget, LoadContext, Modules, NoSharing, SharedWeights};
use crate::protocol::MemoryAccount;

/// Adds what matrices that are f32 whatever the weight dtype take more, trimmed heads, and modules' caches.
pub(super) fn memory(
    config: &DeepSeekConfig,
    context: &LoadContext<'_>,
    account: MemoryAccount,
    size: u64,
) -> MemoryAccount {
    let (latent, source, c) = (&config.latent, context.source, &config.transformer);
    let modules = check_modules(source, (c, latent)).ok().filter(|_| context.loads_modules()).unwrap_or(0);
    let wide = |layers: usize| latent.wide_weights(c.d_model, layers) * (4 - size);
    // rows of the head that a trimmed one copies, in f32
    let trimmed = context.draft_vocab().ok().flatten().map_or(0, |vocab| 4 * (vocab.len() * c.d_model) as u64);
    MemoryAccount {
        target_weights: account.target_weights + wide(c.layers),
        drafter_weights: account.drafter_weights + wide(c.layers + modules) - wide(c.layers) + trimmed * modules as u64,
        drafter_kv: account.target_kv / c.layers as u64 * modules as u64,
        ..account
    }
}

impl CandleFamily for DeepSeekWeights {
    fn own_modules(target: &CandleTarget<Self>, context: &LoadContext<'_>) -> Option<Result<Modules, ModelError>> {
        Some(own_modules(target, context))
    }

    fn shared(target: &CandleTarget<Self>) -> Result<SharedWeights<'_>, NoSharing> {
        Err(NoSharing {
            family: article(&target.weights.trunk.config),
            instead_of_head: "start without --draft-model, and its own modules draft",
            instead_of_module: "brings its own, so start without --mtp",
        })
    }
}

fn own_modules(target: &CandleTarget<DeepSeekWeights>, context: &LoadContext<'_>) -> Result<Modules, ModelError> {
    let vocab = context.draft_vocab()?;
    let modules = load_modules(context, &target.weights, vocab.as_deref())?;
    let (modules, tables): (Vec<CandleMtp>, Vec<u64>) = modules.into_iter().unzip();
    let what =
        if modules.len() == 1 { "its own module".to_owned() } else { format!("its own {} modules", modules.len()) };
    let name = format!("{} ({what})", context.source.name());
    let (modules, mut info) = core::modules(modules, name, &target.spec.dtype);
    info.weight_bytes += tables.iter().sum::<u64>();
    Ok((modules, info))
}
