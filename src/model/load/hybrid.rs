//! Loading the families whose matrices run on either backend: a Qwen3.5 and the draft module it brings; a Gemma 4; what
//! has DeepSeek-V3's layout.

use std::sync::Arc;

use candle_core::Device;

use super::{Drafting, Job, Progress, TargetAndDrafter, gemma4, latent, names_head};
use crate::model::families::qwen35::{DraftVocab, Qwen35, Qwen35Weights, load_module};
use crate::model::nn::matmul_backend::Held;
use crate::model::{ModelError, MtpModule};
use crate::protocol::{DrafterInfo, DrafterKind};

/// The target, and what drafts for it.
pub(super) fn load(
    job: &Job<'_>,
    held: (Held, String, &Device),
    progress: &mut Progress<'_>,
) -> Result<TargetAndDrafter, ModelError> {
    match (&job.config.gemma, &job.config.latent) {
        (Some(_), _) => gemma4::load(job, held, progress),
        (None, Some(_)) => latent::load(job, held, progress),
        (None, None) => qwen35(job, held, progress),
    }
}

/// A Qwen3.5 and the module it brings.
fn qwen35(
    job: &Job<'_>,
    (held, dtype, device): (Held, String, &Device),
    progress: &mut Progress<'_>,
) -> Result<TargetAndDrafter, ModelError> {
    let Job { recipe, source, ctx_len, .. } = *job;
    let spec = job.spec(&held, &dtype, device);
    let mut on_block = |done: usize, total: usize| progress("target", done as u64, total as u64);
    let weights = Arc::new(Qwen35Weights::load(source, ctx_len, (held.clone(), device), &mut on_block)?);
    progress("drafter", 0, 1);
    let mtp = match (&job.head, &recipe.mtp) {
        (Some(_), _) => Some(Err(ModelError::Unsupported(
            "an EAGLE-3 head beside a Qwen3.5 is not supported; start without --draft-model, and its own module drafts"
                .into(),
        ))),
        (None, Some(mtp)) if mtp.required => Some(Err(ModelError::Unsupported(format!(
            "the module {} is made for targets of the Llama kind; a Qwen3.5 brings its own, so start without --mtp",
            mtp.name
        )))),
        (None, Some(_)) if !names_head(recipe) => Some(own_module(job, (&weights, held, dtype))),
        (None, _) => None,
    };
    Ok((Box::new(Qwen35::new(weights, spec, recipe.rollback)?), mtp))
}

fn own_module(
    job: &Job<'_>,
    (target, held, dtype): (&Arc<Qwen35Weights>, Held, String),
) -> Result<Drafting, ModelError> {
    let Job { recipe, source, config, ctx_len, .. } = *job;
    let ends = || source.codec().map(|codec| codec.ends().to_vec());
    let vocab = match &recipe.draft_vocab {
        None | Some(DraftVocab::All) => None,
        Some(vocab) => Some(vocab.tokens(config.vocab, &ends()?)?),
    };
    let Some(module) = load_module(source, held, (target, ctx_len), vocab)? else {
        let announced = config.hybrid.as_ref().is_some_and(|hybrid| hybrid.announces_mtp);
        return Err(ModelError::Unsupported(match announced {
            true => format!("{} announces an MTP module and holds no tensor of it", source.file_name()),
            false => format!("{} brings no MTP module", source.file_name()),
        }));
    };
    let info = DrafterInfo {
        kind: DrafterKind::Mtp,
        name: format!("{} (own module)", source.name()),
        sha256: None,
        dtype,
        weight_bytes: module.bytes(),
        kv_bytes_per_token: module.kv_bytes_per_slot(),
        draft_vocab: module.draft_vocab().len() as u32,
        context_vocab: module.context_vocab() as u64,
    };
    Ok((vec![Box::new(module)], info))
}
