//! Loading a model of DeepSeek-V3's layout and the draft modules in its files.

use std::sync::Arc;

use crate::model::drafters::core::{self, CandleMtp};
use crate::model::families::deepseek::config::DeepSeekConfig;
use crate::model::families::deepseek::module::{check_modules, load_modules, own_tables};
use crate::model::families::deepseek::{DeepSeek, DeepSeekWeights};
use crate::model::interfaces::{Backend, LoadContext, LoadedTarget, Modules, NoSharing, Progress, SharedWeights};
use crate::model::memory::MemoryNeed;
use crate::model::nn::matmul_backend::MatmulBackend;
use crate::model::options::WeightType;
use crate::model::{Model, ModelError, ModelSpec};

/// Adds what its modules and their caches take, and the matrices that are f32 whatever the weight type.
pub(super) fn memory(
    config: &DeepSeekConfig,
    context: &LoadContext<'_>,
    need: MemoryNeed,
    weight_type: WeightType,
) -> MemoryNeed {
    let (latent, source, c) = (&config.latent, context.source, &config.transformer);
    let drafts = context.options.mtp.as_ref().is_some_and(|mtp| !mtp.required);
    let modules = check_modules(source, config).ok().filter(|_| drafts).unwrap_or(0);
    let blocks = c.layers + modules;
    let (d, table) = (c.d_model, (c.vocab * c.d_model) as u64);
    let size = if weight_type == WeightType::F32 { 4 } else { 2 };
    let weights = match weight_type {
        WeightType::Stored => source.stored_bytes(blocks),
        WeightType::F32 | WeightType::Bf16 => {
            // copies of the target's tables take nothing, but only reading them would tell
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

/// Loads the target.
pub(super) fn target(
    config: &DeepSeekConfig,
    context: &LoadContext<'_>,
    backend: &Backend<'_>,
    progress: &mut Progress<'_>,
) -> Result<Box<dyn LoadedTarget>, ModelError> {
    let (matmul, dtype, device) = context.matmul(backend);
    let spec = context.spec(&matmul, &dtype, device);
    let mut on_block = |done: usize, total: usize| progress("target", done as u64, total as u64);
    let from = (context.source, config);
    let weights = DeepSeekWeights::load(from, context.ctx_len, (matmul.clone(), device), &mut on_block)?;
    let family = config.article();
    Ok(Box::new(Target { weights: Arc::new(weights), spec, matmul, config: config.clone(), family }))
}

struct Target {
    weights: Arc<DeepSeekWeights>,
    spec: ModelSpec,
    matmul: MatmulBackend,
    config: DeepSeekConfig,
    family: &'static str,
}

impl Target {
    fn modules(&self, context: &LoadContext<'_>) -> Result<Modules, ModelError> {
        let vocab = context.draft_vocab()?;
        let from = (context.source, &self.config);
        let modules = load_modules(from, &self.matmul, (&self.weights, context.ctx_len), vocab.as_deref())?;
        let (modules, tables): (Vec<CandleMtp>, Vec<u64>) = modules.into_iter().unzip();
        let what =
            if modules.len() == 1 { "its own module".to_owned() } else { format!("its own {} modules", modules.len()) };
        let name = format!("{} ({what})", context.source.name());
        let (modules, mut info) = core::modules(modules, name, &self.spec.dtype);
        info.weight_bytes += tables.iter().sum::<u64>();
        Ok((modules, info))
    }
}

impl LoadedTarget for Target {
    fn own_modules(&self, context: &LoadContext<'_>) -> Option<Result<Modules, ModelError>> {
        Some(self.modules(context))
    }

    fn shared(&self) -> Result<SharedWeights<'_>, NoSharing> {
        Err(NoSharing {
            family: self.family,
            instead_of_head: "start without --draft-model, and its own modules draft",
            instead_of_module: "brings its own, so start without --mtp",
        })
    }

    fn into_model(self: Box<Self>) -> Result<Box<dyn Model>, ModelError> {
        Ok(Box::new(DeepSeek::new(self.weights, self.spec)?))
    }
}
