//! How much memory a model and the draft modules in its files will take, from headers alone: the account that `models
//! info`, "does it fit" and, with what was loaded besides, the program show.

use std::ops::Range;
use std::path::Path;

use draftscope_kernels::{BLOCK, Encoding, LANES};

use crate::ModelSpec;
use crate::draft_tokens::CONTEXT_VOCAB;
use crate::files::{LoadedTensor, MatrixForm, ModelFiles};
use crate::interfaces::LoadContext;
use crate::load::open::OpenModel;
use crate::memory::MemoryNeed;
use crate::native::{account, threads};
use crate::options::{Backend, DeviceChoice, Dtype, LoadOptions, ModuleFile, Rollback, WeightType};
use crate::plan::{Folded, Latent, Layer, ModuleLayer, Plan};
use draftscope_protocol::{DrafterInfo, MemoryAccount};

/// States that are kept besides those of rows: before the rows that may be rolled back, and at ends of prompts.
const KEPT_STATES: u64 = 5;

/// Rows whose states, or inputs, are kept.
const KEPT_ROWS: u64 = 17;

/// The account of a model on the native kernels or on candle.
pub(super) fn of(context: &LoadContext<'_>, weight_type: WeightType, on_kernels: bool) -> MemoryNeed {
    let LoadContext { options, source, config, ctx_len, .. } = *context;
    let transformer = config.transformer();
    let plan = config.plan();
    let own: &[ModuleLayer] = if context.loads_modules() { &plan.modules[..] } else { &[] };
    let modules = own.len();
    let form = if on_kernels { MatrixForm::Tiles } else { MatrixForm::Candle(weight_type) };
    let (size, dtype) = match weight_type {
        WeightType::F32 => (4, "f32".to_owned()),
        WeightType::Bf16 => (2, "bf16".to_owned()),
        WeightType::Stored => {
            let dtype = source.stored_dtype();
            let dtype = if dtype == "f8_e4m3" { "bf16".to_owned() } else { dtype };
            (if dtype == "f32" { 4 } else { 2 }, dtype)
        }
    };
    let tensors = source.loaded_tensors(transformer.layers, modules);
    // on candle, matrices that choose experts are never rounded
    let wide = |layers: Range<usize>| {
        let routers = layers.filter_map(|layer| source.loaded_tensor(&format!("blk.{layer}.ffn_gate_inp.weight")));
        if on_kernels { 0 } else { routers.map(|router| router.more_in_f32(form)).sum::<u64>() }
    };
    let layers = transformer.layers;
    let bytes = |of_module: bool| {
        let of_tensors = tensors.iter().filter(|tensor| tensor.of_module == of_module);
        of_tensors.map(|tensor| tensor.bytes(form)).sum::<u64>()
            + wide(if of_module { layers..layers + modules } else { 0..layers })
    };
    // rows that are only looked up stay as stored
    let looked_up = match weight_type {
        WeightType::Stored => 0,
        _ => (size * plan.looked_up_weights()) as i64 - looked_up_bytes(plan, source) as i64,
    };
    let cached = |layers: &mut dyn Iterator<Item = &Layer>| match on_kernels {
        true => account::cache_bytes(layers),
        false => options.pass_form().kv_bytes() as u64 * layers.map(Layer::cached_values).sum::<u64>(),
    };
    let kept = match options.rollback.unwrap_or_default() {
        Rollback::Snapshots => KEPT_ROWS * plan.state_bytes(), // the last one is the present one
        Rollback::Replay => plan.state_bytes() + KEPT_ROWS * plan.replay_bytes(),
    };
    let states = KEPT_STATES * plan.state_bytes() + kept;
    let dense = matches!(dtype.as_str(), "f32" | "f16" | "bf16");
    let threads = options.threads.unwrap_or_else(threads::available);
    let passes = match on_kernels {
        true => {
            let of_module =
                |module: &ModuleLayer| account::module_passes((transformer, plan), &module.layer, (ctx_len, dense));
            account::target_passes((transformer, plan), (ctx_len, threads), (kept, dense))
                + own.iter().map(of_module).sum::<u64>()
        }
        false => {
            let matrix = |tensor: &LoadedTensor<'_>| match tensor.shape {
                [.., rows, k]
                    if tensor.encoding.is_some() && rows.saturating_mul(*k) as u64 != plan.looked_up_weights() =>
                {
                    rows.saturating_mul(*k)
                }
                _ => 0,
            };
            let largest = tensors.iter().map(matrix).max().unwrap_or(0);
            plan.pass_widths().bytes(dtype == "bf16", (account::PROMPT_BLOCK, ctx_len), (modules, largest))
        }
    };
    let halves = if on_kernels { halved_projections(&tensors, transformer.d_model) } else { 0 };
    let folded = |layers: &mut dyn Iterator<Item = &Layer>| {
        layers.filter_map(Layer::latent).map(|latent| more_if_folded(latent, source, form)).sum::<i64>()
    };
    let account = MemoryAccount {
        target_weights: bytes(false).saturating_add_signed(folded(&mut plan.layers.iter()) - looked_up),
        drafter_weights: (bytes(true) + halves + trimmed_heads(context, own, on_kernels))
            .saturating_add_signed(folded(&mut own.iter().map(|module| &module.layer))),
        target_kv: cached(&mut plan.layers.iter()),
        drafter_kv: cached(&mut own.iter().map(|module| &module.layer)),
        states,
        passes,
        ctx_len: ctx_len as u64,
    };
    MemoryNeed { account, dtype }
}

/// Bytes of the table whose rows are only looked up: as stored, but FP8 is widened to two bytes.
fn looked_up_bytes(plan: &Plan, source: &ModelFiles) -> u64 {
    let Some(of) = &plan.embedding.by_layer else { return 0 };
    let stored = source.bytes_of(of.table.name()).unwrap_or(0);
    if source.is_checkpoint() { stored.max(2 * of.table.weights()) } else { stored }
}

/// Bytes of the rows of heads that trimmed ones copy: in f32, of each head that is a module's own, and of the target's once;
/// of whole passes on the kernels as the head is stored, for each module, with room for tokens of the text.
fn trimmed_heads(context: &LoadContext<'_>, modules: &[ModuleLayer], on_kernels: bool) -> u64 {
    let (plan, trims) = (context.config.plan(), context.config.trims_draft_vocab(false));
    let Some(vocab) = context.draft_vocab().ok().flatten().filter(|_| trims) else { return 0 };
    if on_kernels {
        let head = context.source.loaded_tensor(plan.head().name()).map_or(0, |head| head.bytes(MatrixForm::Tiles));
        let rows = (vocab.len() + CONTEXT_VOCAB).min(plan.vocab);
        return head / plan.vocab.max(1) as u64 * (rows * modules.len()) as u64;
    }
    let own = modules.iter().filter(|module| module.has_head).count();
    let heads = own + usize::from(own < modules.len());
    4 * (heads * vocab.len() * plan.width) as u64
}

/// Bytes that the folded matrices of latent attention take beyond those of their tensors in the form of others: f32 on
/// candle; on the native kernels as stored, but transposed ones of quantised tensors are f32 too, and heads are padded.
fn more_if_folded(latent: &Latent, source: &ModelFiles, form: MatrixForm) -> i64 {
    let folded = [&latent.to_keys, &latent.to_values];
    let bytes = |of: &Folded| {
        let encoding = source.loaded_tensor(&of.stored.tensor.name)?.encoding?;
        Some(match form {
            MatrixForm::Candle(_) => 4 * of.weights(),
            MatrixForm::Tiles => {
                let as_stored = !of.transposed || encoding.form().is_dense();
                let whole = of.out.is_multiple_of(LANES) && of.columns.is_multiple_of(BLOCK);
                let form = if as_stored && whole { encoding.form() } else { Encoding::F32.form() };
                let tiles = of.heads.saturating_mul(of.out.div_ceil(LANES));
                tiles.saturating_mul(form.tile_bytes(of.columns.next_multiple_of(BLOCK))) as u64
            }
        })
    };
    let mut names = folded.map(|of| of.stored.tensor.name.as_str()).to_vec();
    names.dedup();
    let tensors =
        names.iter().filter_map(|name| source.loaded_tensor(name)).map(|tensor| tensor.bytes(form)).sum::<u64>();
    match folded.map(bytes) {
        [Some(keys), Some(values)] => (keys + values) as i64 - tensors as i64,
        _ => 0, // a type that does not run
    }
}

/// Positions of the rings in which recurrent layers keep rows on a GPU, and copies of their states there.
#[cfg(feature = "gpu")]
const GPU_RING: u64 = 80;
#[cfg(feature = "gpu")]
const GPU_MARKS: u64 = 3;

/// The account of a model on the GPU backend. What passes take is estimated by the CPU's until buffers are made:
/// [`with_buffers`].
#[cfg(feature = "gpu")]
pub(super) fn on_gpu(context: &LoadContext<'_>) -> MemoryNeed {
    let plan = context.config.plan();
    let need = of(context, WeightType::Stored, true);
    // a state, an older one, and copies, which have half of what rings keep of rows
    let rings = GPU_RING * plan.replay_bytes();
    let states = (2 + GPU_MARKS) * plan.state_bytes() + rings + GPU_MARKS * rings / 2;
    let account = MemoryAccount { target_kv: 2 * plan.cached_values(), states, ..need.account };
    MemoryNeed { account, ..need }
}

/// The account of a loaded model on a GPU: of all bytes of buffers, passes take what weights, caches and states do not.
pub(super) fn with_buffers(account: MemoryAccount, made: u64) -> MemoryAccount {
    let rest = MemoryAccount { passes: 0, ..account };
    MemoryAccount { passes: made.saturating_sub(rest.total()), ..rest }
}

/// Bytes that modules' projections, `[d, 2 d]`, take on the kernels besides those of their tensors: they are cut in halves,
/// which are f32 where a half is no whole blocks.
fn halved_projections(tensors: &[LoadedTensor<'_>], d: usize) -> u64 {
    let is_cut = |tensor: &&LoadedTensor<'_>| tensor.encoding.is_some_and(|encoding| encoding.row_bytes(d).is_none());
    let projections = tensors.iter().filter(|tensor| tensor.of_module && tensor.shape == [d, 2 * d]).filter(is_cut);
    let more = |tensor: &LoadedTensor<'_>| (8 * d * d) as u64 - tensor.bytes(MatrixForm::Tiles).min((8 * d * d) as u64);
    projections.map(more).sum()
}

/// The account once target and draft modules are loaded: with modules from other files, and without those that a file
/// has and that are not loaded.
pub(super) fn loaded(account: MemoryAccount, spec: &ModelSpec, module: Option<&DrafterInfo>) -> MemoryAccount {
    MemoryAccount {
        target_weights: spec.info.weight_bytes,
        drafter_weights: module.map_or(0, |info| info.weight_bytes),
        target_kv: spec.info.kv_bytes_per_token,
        drafter_kv: module.map_or(0, |info| info.kv_bytes_per_token),
        ..account
    }
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
        device_memory: None,
        backend: Backend::Auto,
        threads: None,
        ctx_len: Some(ctx_len),
        mtp: Some(own),
        draft_model: None,
        draft_model_required: false,
        vocab_method: None,
        divides_by_q: false,
        rollback: None,
        draft_vocab: None,
        think: None,
        special_tokens: false,
        pass_form: None,
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
    use crate::load::dtype::weight_type;
    use crate::load::{OpenModel, load};
    use crate::options::DraftVocab;

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
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/fixtures/checkpoints/gemma4")
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
                    device_memory: None,
                    backend,
                    threads: Some(1),
                    ctx_len: Some(16),
                    mtp: None,
                    draft_model: None,
                    draft_model_required: false,
                    vocab_method: None,
                    divides_by_q: false,
                    rollback: None,
                    draft_vocab: None,
                    think: None,
                    special_tokens: false,
                    pass_form: None,
                };
                let opened = OpenModel::open(folder.path()).unwrap();
                let weight_type = weight_type(dtype, &opened.source, &Device::Cpu).0;
                let need = of(&context(&options, &opened), weight_type, backend == Backend::Native).account.weights();
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
            target: Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
                .join("tests/fixtures/checkpoints")
                .join(name),
            sha256: None,
            dtype,
            device: DeviceChoice::Cpu,
            adapter: None,
            device_memory: None,
            backend,
            threads: Some(1),
            ctx_len: Some(64),
            mtp: Some(own),
            draft_model: None,
            draft_model_required: false,
            vocab_method: None,
            divides_by_q: false,
            rollback: None,
            draft_vocab,
            think: None,
            special_tokens: false,
            pass_form: None,
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
                    let need = of(&context, held, backend == Backend::Native).account;
                    let loaded = load(&options, &mut |_, _, _| {}).unwrap();
                    let (info, drafter) = (&loaded.target.spec().info, loaded.mtp.unwrap().1);
                    let taken = info.weight_bytes + drafter.weight_bytes;
                    let what = format!(
                        "{name}, {backend:?}, {dtype:?}, {:?}: {} of {taken}",
                        options.draft_vocab,
                        need.weights()
                    );
                    println!("{what}");
                    // tables that are copies, trimmed heads that are one, rows that fill up sixteens
                    assert!((taken..taken * 13 / 10).contains(&need.weights()), "{what}");
                    assert_eq!(need.cache(), 64 * (info.kv_bytes_per_token + drafter.kv_bytes_per_token), "{what}");
                }
            }
        }
    }
}
