//! How much memory a model will need, for "does it fit".

use std::path::Path;

use crate::model::interfaces::LoadContext;
use crate::model::load::OpenModel;
use crate::model::memory::MemoryNeed;
use crate::model::native::{account, threads};
use crate::model::options::{Backend, DeviceChoice, Dtype, LoadOptions, ModuleFile, Rollback, WeightType};

/// Bytes of weights, a full cache and passes, on the native kernels or on candle.
pub(super) fn of(context: &LoadContext<'_>, weight_type: WeightType, on_kernels: bool) -> MemoryNeed {
    let LoadContext { options, source, config, ctx_len, .. } = *context;
    let modules = match options.mtp.as_ref().is_some_and(|mtp| !mtp.required) {
        true => config.own_modules(source).found,
        false => 0,
    };
    let whole = on_kernels && config.runs_whole_native();
    let weights_of =
        |size: u64| size * (config.matrix_weights() - config.looked_up_weights()) + config.looked_up_bytes(source);
    let (weights, dtype) = match weight_type {
        WeightType::F32 => (weights_of(4), "f32".to_owned()),
        WeightType::Bf16 => (weights_of(2), "bf16".to_owned()),
        WeightType::Stored => {
            let dtype = source.stored_dtype();
            let dtype = if dtype == "f8_e4m3" { "bf16".to_owned() } else { dtype };
            (account::weight_bytes(source, (config.transformer(), modules), whole), dtype)
        }
    };
    let value_bytes = if whole { 2 } else { 4 };
    let values = config.cached_values() + modules as u64 * config.module_values();
    // the present state, and a copy for each row of a round of default length
    let copies = if options.rollback == Rollback::Replay { 6 } else { 23 }; // base, present, marks, 17 rows
    let cache = values * value_bytes * ctx_len as u64 + copies * config.state_bytes();
    let working = match whole {
        true => {
            let dense = matches!(dtype.as_str(), "f32" | "f16" | "bf16");
            let threads = options.threads.unwrap_or_else(threads::available);
            account::working_bytes(config.transformer(), (ctx_len, threads), dense)
        }
        false => 0,
    };
    config.memory(context, MemoryNeed { weights, dtype, cache, working, ctx_len }, weight_type)
}

/// What a model takes with default options and so many positions, its own modules included.
pub(super) fn by_default(path: &Path, opened: &OpenModel, ctx_len: usize) -> MemoryNeed {
    let own = ModuleFile { name: String::new(), weights: [].into(), config: [].into(), sha256: None, required: false };
    let options = LoadOptions {
        target: path.to_owned(),
        sha256: None,
        dtype: Dtype::Auto,
        device: DeviceChoice::Cpu,
        adapter: None,
        backend: Backend::Auto,
        threads: None,
        ctx_len: Some(ctx_len),
        mtp: Some(own),
        draft_model: None,
        draft_model_required: false,
        rollback: Rollback::default(),
        draft_vocab: None,
        think: None,
    };
    let (source, config) = (&opened.source, opened.config.as_ref());
    of(&LoadContext { options: &options, source, config, ctx_len, ends: &[] }, WeightType::Stored, true)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use candle_core::Device;
    use half::{bf16, f16};
    use safetensors::tensor::TensorView;
    use safetensors::{Dtype as Stored, SafeTensors};

    use super::*;
    use crate::model::load::{OpenModel, load, weight_type};
    use crate::model::options::DraftVocab;

    fn context<'a>(options: &'a LoadOptions, opened: &'a OpenModel) -> LoadContext<'a> {
        LoadContext {
            options,
            source: &opened.source,
            config: opened.config.as_ref(),
            ctx_len: options.ctx_len.unwrap(),
            ends: &[],
        }
    }

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
    fn the_need_is_at_least_what_the_weights_of_a_gemma4_take() {
        for stored in [Stored::BF16, Stored::F16, Stored::F32] {
            let folder = stored_as(stored);
            for (backend, dtype) in [
                (Backend::Candle, Dtype::F32),
                (Backend::Candle, Dtype::Bf16),
                (Backend::Candle, Dtype::Stored),
                (Backend::Native, Dtype::Stored),
            ] {
                let options = LoadOptions {
                    target: folder.path().into(),
                    sha256: None,
                    dtype,
                    device: DeviceChoice::Cpu,
                    adapter: None,
                    backend,
                    threads: Some(1),
                    ctx_len: Some(16),
                    mtp: None,
                    draft_model: None,
                    draft_model_required: false,
                    rollback: Rollback::default(),
                    draft_vocab: None,
                    think: None,
                };
                let opened = OpenModel::open(folder.path()).unwrap();
                let weight_type = weight_type(dtype, &opened.source, &Device::Cpu).0;
                let need = of(&context(&options, &opened), weight_type, backend == Backend::Native).weights;
                let takes = load(&options, &mut |_, _, _| {}).unwrap().target.spec().info.weight_bytes;
                let what = format!("{stored:?} held as {dtype:?} on {backend:?}");
                assert!(need >= takes, "{what}: {need} are asked for and {takes} taken");
                assert!(dtype == Dtype::Stored || need == takes, "{what}: {need} are asked for and {takes} taken");
            }
        }
    }

    fn options(name: &str, (backend, dtype): (Backend, Dtype), draft_vocab: Option<DraftVocab>) -> LoadOptions {
        let own = ModuleFile {
            name: "built in".into(),
            weights: [].into(),
            config: [].into(),
            sha256: None,
            required: false,
        };
        LoadOptions {
            target: Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/checkpoints").join(name),
            sha256: None,
            dtype,
            device: DeviceChoice::Cpu,
            adapter: None,
            backend,
            threads: Some(1),
            ctx_len: Some(64),
            mtp: Some(own),
            draft_model: None,
            draft_model_required: false,
            rollback: Rollback::default(),
            draft_vocab,
            think: None,
        }
    }

    #[test]
    fn the_need_of_a_deepseek_and_its_modules_is_what_they_take_and_little_more() {
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
                    let options = options(name, (backend, dtype), vocab);
                    let opened = OpenModel::open(&options.target).unwrap();
                    let codec = opened.codec().unwrap();
                    let context = LoadContext { ends: codec.ends(), ..context(&options, &opened) };
                    let need = of(&context, held, backend == Backend::Native);
                    let loaded = load(&options, &mut |_, _, _| {}).unwrap();
                    let (info, drafter) = (&loaded.target.spec().info, loaded.mtp.unwrap().1);
                    let taken = info.weight_bytes + drafter.weight_bytes;
                    let what = format!(
                        "{name}, {backend:?}, {dtype:?}, {:?}: {} of {taken}",
                        options.draft_vocab, need.weights
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
