//! Loading a model of DeepSeek-V3's layout and the draft modules it brings.

use std::sync::Arc;

use candle_core::Device;

use super::{Drafting, Job, Progress, TargetAndDrafter};
use crate::model::block::WeightType;
use crate::model::deepseek::{self, DeepSeek, DeepSeekWeights};
use crate::model::fit::Need;
use crate::model::llama::device_name;
use crate::model::native::NativeCpu;
use crate::model::qwen35::Held;
use crate::model::{ModelError, ModelSpec};
use crate::protocol::{DrafterInfo, DrafterKind};

/// What a model of this layout takes besides: its modules, their caches, and the matrices that are folded into queries
/// and answers, which are held in f32.
pub(super) fn with_modules(job: &Job<'_>, need: Need, held: WeightType) -> Need {
    let (config, source) = (job.config, job.source);
    let Some(latent) = &config.latent else {
        return need;
    };
    let drafts = job.recipe.mtp.as_ref().is_some_and(|mtp| !mtp.required);
    let modules = deepseek::check_modules(source, config).ok().filter(|_| drafts).unwrap_or(0);
    let size = match held {
        WeightType::F32 => 4,
        WeightType::Bf16 | WeightType::Stored => 2,
    };
    // with weights as stored, the file's size counts its modules already
    let counted = held == WeightType::Stored && source.stored_dtype() != "f8_e4m3";
    let own = if counted { 0 } else { modules as u64 * size * latent.module_weights(config.d_model) };
    let a = &latent.attention;
    let folded = (a.heads * (a.plain + a.value) * a.rank) as u64 * (4 - size);
    let blocks = (config.layers + modules) as u64;
    let cache = need.cache / config.layers as u64 * blocks;
    Need { weights: need.weights + own + folded * blocks, cache, ..need }
}

/// A target and the modules it brings.
pub(super) fn load(
    job: &Job<'_>,
    (held, dtype, device): (Held, String, &Device),
    progress: &mut Progress<'_>,
) -> Result<TargetAndDrafter, ModelError> {
    let Job { recipe, source, config, ctx_len, .. } = *job;
    let native = match &held {
        Held::Native(cpu) => Some(cpu.clone()),
        Held::Candle(_) => None,
    };
    let mut on_block = |done: usize, total: usize| progress("target", done as u64, total as u64);
    let weights = Arc::new(DeepSeekWeights::load(source, ctx_len, (held.clone(), device), &mut on_block)?);
    let mut info = source.describe(config);
    info.sha256.clone_from(&recipe.sha256);
    let spec = ModelSpec {
        info,
        ctx_len,
        backend: if native.is_some() { "native" } else { "candle" },
        device: match &native {
            Some(cpu) => format!("cpu ({})", cpu.isa()),
            None => device_name(device).to_owned(),
        },
        dtype: dtype.clone(),
        threads: native.as_ref().map_or_else(candle_core::utils::get_num_threads, NativeCpu::threads),
    };
    progress("drafter", 0, 1);
    let family = config.architecture.name();
    let mtp = match (&job.head, &recipe.mtp) {
        (Some(_), _) => Some(Err(ModelError::Unsupported(format!(
            "an EAGLE-3 head beside a {family} is not supported; start without --draft-model, and its own modules draft"
        )))),
        (None, Some(mtp)) if mtp.required => Some(Err(ModelError::Unsupported(format!(
            "the module {} is made for targets of the Llama kind; a {family} brings its own, so start without --mtp",
            mtp.name
        )))),
        (None, Some(_)) => Some(own_modules(job, (&weights, &held, dtype))),
        (None, None) => None,
    };
    Ok((Box::new(DeepSeek::new(weights, spec)?), mtp))
}

fn own_modules(
    job: &Job<'_>,
    (target, held, dtype): (&Arc<DeepSeekWeights>, &Held, String),
) -> Result<Drafting, ModelError> {
    let Job { recipe, source, config, ctx_len, .. } = *job;
    let vocab = match &recipe.draft_vocab {
        Some(vocab) => Some(vocab.tokens(config.vocab, source.codec()?.ends())?),
        None => None,
    };
    let modules = deepseek::load_modules(source, held, (target, ctx_len), vocab.as_deref())?;
    let what =
        if modules.len() == 1 { "its own module".to_owned() } else { format!("its own {} modules", modules.len()) };
    let info = DrafterInfo {
        kind: DrafterKind::Mtp,
        name: format!("{} ({what})", source.name()),
        sha256: None,
        dtype,
        weight_bytes: modules.iter().map(|(module, own)| module.bytes() + own).sum(),
        kv_bytes_per_token: modules.iter().map(|(module, _)| module.kv_bytes_per_slot()).sum(),
        draft_vocab: vocab.map_or(config.vocab, |vocab| vocab.len()) as u32,
    };
    Ok((modules.into_iter().map(|(module, _)| Box::new(module) as _).collect(), info))
}
