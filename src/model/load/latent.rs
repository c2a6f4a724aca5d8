//! Loading a model of DeepSeek-V3's layout and the draft modules it brings.

use std::sync::Arc;

use candle_core::Device;

use super::{Drafting, Job, Progress, TargetAndDrafter};
use crate::model::ModelError;
use crate::model::families::deepseek;
use crate::model::families::deepseek::{DeepSeek, DeepSeekWeights};
use crate::model::families::qwen35::DraftVocab;
use crate::model::memory::Need;
use crate::model::nn::block::WeightType;
use crate::model::nn::matmul_backend::Held;
use crate::protocol::{DrafterInfo, DrafterKind, TokenId};

/// What a model of this layout takes: its modules and their caches besides, and what is held in f32 all the same.
pub(super) fn with_modules(job: &Job<'_>, need: Need, held: WeightType) -> Need {
    let (config, source) = (job.config, job.source);
    let Some(latent) = &config.latent else {
        return need;
    };
    let drafts = job.recipe.mtp.as_ref().is_some_and(|mtp| !mtp.required);
    let modules = deepseek::check_modules(source, config).ok().filter(|_| drafts).unwrap_or(0);
    let blocks = config.layers + modules;
    let (d, table) = (config.d_model, (config.vocab * config.d_model) as u64);
    let size = if held == WeightType::F32 { 4 } else { 2 };
    let weights = match held {
        WeightType::Stored => source.held_bytes(blocks),
        WeightType::F32 | WeightType::Bf16 => {
            // what is a copy of the target's is not held: only reading it would tell
            let tables: u64 = (0..modules).map(|index| deepseek::own_tables(source, config, index)).sum();
            need.weights + size * (modules as u64 * latent.module_weights(d) + tables * table)
        }
    };
    let wide = latent.wide_weights(d, blocks) * (4 - size);
    let trimmed = if modules > 0 { trimmed_head(job) * (modules as u64) } else { 0 };
    let cache = need.cache / config.layers as u64 * blocks as u64;
    Need { weights: weights + wide + trimmed, cache, ..need }
}

/// Bytes of the head's rows that a trimmed one copies, in f32.
fn trimmed_head(job: &Job<'_>) -> u64 {
    draft_vocab(job).ok().flatten().map_or(0, |vocab| 4 * (vocab.len() * job.config.d_model) as u64)
}

/// The tokens that modules may propose; none = all.
fn draft_vocab(job: &Job<'_>) -> Result<Option<Vec<TokenId>>, ModelError> {
    match &job.recipe.draft_vocab {
        None | Some(DraftVocab::All) => Ok(None),
        Some(vocab) => vocab.tokens(job.config.vocab, job.source.codec()?.ends()).map(Some),
    }
}

/// A target and the modules it brings.
pub(super) fn load(
    job: &Job<'_>,
    (held, dtype, device): (Held, String, &Device),
    progress: &mut Progress<'_>,
) -> Result<TargetAndDrafter, ModelError> {
    let Job { recipe, source, config, ctx_len, .. } = *job;
    let spec = job.spec(&held, &dtype, device);
    let mut on_block = |done: usize, total: usize| progress("target", done as u64, total as u64);
    let weights = Arc::new(DeepSeekWeights::load(source, ctx_len, (held.clone(), device), &mut on_block)?);
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
    let Job { source, config, ctx_len, .. } = *job;
    let vocab = draft_vocab(job)?;
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
        context_vocab: modules.first().map_or(0, |(module, _)| module.context_vocab()) as u64,
    };
    Ok((modules.into_iter().map(|(module, _)| Box::new(module) as _).collect(), info))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{Backend, DeviceChoice, Dtype, MtpRecipe, Recipe, Rollback, load};
    use super::*;
    use crate::model::files::source::Source;

    fn recipe(name: &str, (backend, dtype): (Backend, Dtype), draft_vocab: Option<DraftVocab>) -> Recipe {
        let own =
            MtpRecipe { name: "built in".into(), weights: [].into(), config: [].into(), sha256: None, required: false };
        Recipe {
            target: Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/checkpoints").join(name),
            sha256: None,
            dtype,
            device: DeviceChoice::Cpu,
            backend,
            threads: Some(1),
            ctx_len: Some(64),
            mtp: Some(own),
            draft_model: None,
            rollback: Rollback::default(),
            draft_vocab,
        }
    }

    #[test]
    fn what_is_asked_for_is_at_least_what_is_taken_and_little_more() {
        let trimmed = || Some(DraftVocab::First(100));
        for name in ["deepseek", "deepseek-fp8", "glm4-flash"] {
            for (backend, dtype, held) in [
                (Backend::Candle, Dtype::F32, WeightType::F32),
                (Backend::Candle, Dtype::Bf16, WeightType::Bf16),
                (Backend::Candle, Dtype::Stored, WeightType::Stored),
                (Backend::Native, Dtype::Stored, WeightType::Stored),
            ] {
                for vocab in [None, trimmed()] {
                    if (name, backend) == ("glm4-flash", Backend::Native) {
                        continue; // its widths are no multiples of 32
                    }
                    let recipe = recipe(name, (backend, dtype), vocab);
                    let source = Source::open(&recipe.target).unwrap();
                    let config = source.config().unwrap();
                    let job = Job {
                        recipe: &recipe,
                        source: &source,
                        config: &config,
                        ctx_len: 64,
                        head: None,
                        assistant: None,
                    };
                    let need = job.need(held, 4);
                    let loaded = load(&recipe, &mut |_, _, _| {}).unwrap();
                    let (info, drafter) = (&loaded.target.spec().info, loaded.mtp.unwrap().1);
                    let taken = info.weight_bytes + drafter.weight_bytes;
                    let what = format!(
                        "{name}, {backend:?}, {dtype:?}, {:?}: {} of {taken}",
                        recipe.draft_vocab, need.weights
                    );
                    println!("{what}");
                    // tables that are copies, trimmed heads that are one, rows that fill up sixteens
                    assert!((taken..taken * 13 / 10).contains(&need.weights), "{what}");
                    assert_eq!(need.cache, 64 * (info.kv_bytes_per_token + drafter.kv_bytes_per_token), "{what}");
                }
            }
        }
    }
}
