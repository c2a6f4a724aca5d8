//! Loading a Gemma 4 and its assistant.

use std::sync::Arc;

use candle_core::Device;

use super::{Job, Progress, TargetAndDrafter};
use crate::model::gemma4::{Gemma4, Gemma4Weights, assistant};
use crate::model::llama::device_name;
use crate::model::native::NativeCpu;
use crate::model::qwen35::Held;
use crate::model::{ModelError, ModelSpec};

/// A Gemma 4 and the assistant that is named.
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
    let weights = Arc::new(Gemma4Weights::load(source, ctx_len, (held, device), &mut on_block)?);
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
        dtype,
        threads: native.as_ref().map_or_else(candle_core::utils::get_num_threads, NativeCpu::threads),
    };
    progress("drafter", 0, 1);
    let refused = |what: String| Some(Err(ModelError::Unsupported(what)));
    let mtp = match (job.head, job.assistant, &recipe.mtp) {
        (Some(_), ..) => {
            refused("an EAGLE-3 head beside a Gemma 4 is not supported; name its assistant with --draft-model".into())
        }
        (None, Some(plan), _) => {
            let ends = source.codec().map(|codec| codec.ends().to_vec())?;
            Some(assistant::load(plan, &weights, (recipe.draft_vocab.as_ref(), &ends)))
        }
        (None, None, Some(mtp)) if mtp.required => refused(format!(
            "the module {} is made for targets of the Llama kind; a Gemma 4 has an assistant, so name that with --draft-model and leave --mtp out",
            mtp.name
        )),
        (None, None, Some(_)) if !assistant::is_asked_for(recipe) => {
            refused(format!("{} brings no drafter; name its assistant with --draft-model", source.file_name()))
        }
        (None, None, _) => None,
    };
    Ok((Box::new(Gemma4::new(weights, spec)?), mtp))
}
