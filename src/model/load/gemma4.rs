//! Loading a Gemma 4 and its assistant.

use std::sync::Arc;

use candle_core::Device;

use super::{Job, Progress, TargetAndDrafter};
use crate::model::ModelError;
use crate::model::families::gemma4::{Gemma4, Gemma4Weights, TABLE, assistant};
use crate::model::files::source::Source;
use crate::model::nn::config::LlamaConfig;
use crate::model::nn::matmul_backend::Held;

/// Bytes that the table of embeddings for each layer takes in memory: as it is stored, FP8 in halves.
pub(super) fn looked_up_bytes(source: &Source, config: &LlamaConfig) -> u64 {
    match config.looked_up_weights() {
        0 => 0,
        weights => source.bytes_of(TABLE).unwrap_or(0).max(2 * weights),
    }
}

/// A Gemma 4 and the assistant that is named.
pub(super) fn load(
    job: &Job<'_>,
    (held, dtype, device): (Held, String, &Device),
    progress: &mut Progress<'_>,
) -> Result<TargetAndDrafter, ModelError> {
    let Job { recipe, source, ctx_len, .. } = *job;
    let spec = job.spec(&held, &dtype, device);
    let mut on_block = |done: usize, total: usize| progress("target", done as u64, total as u64);
    let weights = Arc::new(Gemma4Weights::load(source, ctx_len, (held, device), &mut on_block)?);
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

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use half::{bf16, f16};
    use safetensors::tensor::TensorView;
    use safetensors::{Dtype as Stored, SafeTensors};

    use super::*;
    use crate::model::load::{Backend, DeviceChoice, Dtype, Recipe, Rollback, load, weight_type};

    fn fixture() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/checkpoints/gemma4")
    }

    /// The fixture with all numbers of this type.
    fn stored_as(dtype: Stored) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
            std::fs::copy(fixture().join(file), folder.path().join(file)).unwrap();
        }
        let bytes = std::fs::read(fixture().join("model.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let as_stored = |halves: &[u8; 2]| match (dtype, bf16::from_le_bytes(*halves).to_f32()) {
            (Stored::F32, number) => number.to_le_bytes().to_vec(),
            (Stored::F16, number) => f16::from_f32(number).to_le_bytes().to_vec(),
            (_, number) => bf16::from_f32(number).to_le_bytes().to_vec(),
        };
        let converted: Vec<(String, Vec<usize>, Vec<u8>)> = tensors
            .tensors()
            .into_iter()
            .map(|(name, view)| {
                let data = view.data().as_chunks().0.iter().flat_map(as_stored).collect();
                (name, view.shape().to_vec(), data)
            })
            .collect();
        let views =
            converted.iter().map(|(name, shape, data)| (name, TensorView::new(dtype, shape.clone(), data).unwrap()));
        std::fs::write(folder.path().join("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
        folder
    }

    #[test]
    fn what_is_asked_for_is_at_least_what_weights_take_whatever_they_are_stored_and_held_in() {
        for stored in [Stored::BF16, Stored::F16, Stored::F32] {
            let folder = stored_as(stored);
            for (backend, dtype) in [
                (Backend::Candle, Dtype::F32),
                (Backend::Candle, Dtype::Bf16),
                (Backend::Candle, Dtype::Stored),
                (Backend::Native, Dtype::Stored),
            ] {
                let recipe = Recipe {
                    target: folder.path().into(),
                    sha256: None,
                    dtype,
                    device: DeviceChoice::Cpu,
                    backend,
                    threads: Some(1),
                    ctx_len: Some(16),
                    mtp: None,
                    draft_model: None,
                    rollback: Rollback::default(),
                    draft_vocab: None,
                };
                let source = Source::open(folder.path()).unwrap();
                let config = source.config().unwrap();
                let held = weight_type(dtype, &source, &Device::Cpu).0;
                let job =
                    Job { recipe: &recipe, source: &source, config: &config, ctx_len: 16, head: None, assistant: None };
                let need = job.need(held, 4).weights;
                let takes = load(&recipe, &mut |_, _, _| {}).unwrap().target.spec().info.weight_bytes;
                let what = format!("{stored:?} held as {dtype:?} on {backend:?}");
                assert!(need >= takes, "{what}: {need} are asked for and {takes} taken");
                assert!(dtype == Dtype::Stored || need == takes, "{what}: {need} are asked for and {takes} taken");
            }
        }
    }
}
