//! Memory needs of a model of DeepSeek-V3's layout, and loading the draft modules in its files.

use crate::model::ModelError;
use crate::model::drafters::core::{self, CandleMtp};
use crate::model::families::deepseek::DeepSeekWeights;
use crate::model::families::deepseek::config::DeepSeekConfig;
use crate::model::families::deepseek::family::article;
use crate::model::families::deepseek::module::{check_modules, load_modules, own_tables};
use crate::model::interfaces::{CandleFamily, CandleTarget, LoadContext, Modules, NoSharing, SharedWeights};
use crate::model::memory::MemoryNeed;
use crate::model::options::WeightType;

/// Adds the memory of its modules and their caches, and of the matrices that are f32 whatever the weight dtype.
pub(super) fn memory(
    config: &DeepSeekConfig,
    context: &LoadContext<'_>,
    need: MemoryNeed,
    weight_type: WeightType,
) -> MemoryNeed {
    let (latent, source, c) = (&config.latent, context.source, &config.transformer);
    let drafts = context.options.mtp.as_ref().is_some_and(|mtp| !mtp.required);
    let modules = check_modules(source, (c, latent)).ok().filter(|_| drafts).unwrap_or(0);
    let blocks = c.layers + modules;
    let (d, table) = (c.d_model, (c.vocab * c.d_model) as u64);
    let size = if weight_type == WeightType::F32 { 4 } else { 2 };
    let weights = match weight_type {
        WeightType::Stored => source.stored_bytes(blocks),
        WeightType::F32 | WeightType::Bf16 => {
            // copies of the target's tables take no memory, but only reading them would show that
            let tables: u64 = (0..modules).map(|index| own_tables(source, c, index)).sum();
            need.weights + size * (modules as u64 * latent.module_weights(d) + tables * table)
        }
    };
    let wide = latent.wide_weights(d, blocks) * (4 - size);
    // rows of the head that a trimmed one copies, in f32
    let trimmed = context.draft_vocab().ok().flatten().map_or(0, |vocab| 4 * (vocab.len() * d) as u64);
    let cache = need.cache / c.layers as u64 * blocks as u64;
    MemoryNeed { weights: weights + wide + trimmed * modules as u64, cache, ..need }
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
