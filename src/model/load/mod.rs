//! From a recipe (paths and choices) to a running target, its tokenizer and its MTP module.
//!
//! A recipe is plain data and may cross threads; what it makes may not, so the thread that runs the
//! model is the one that loads it.

mod aside;
pub mod card;
mod device;
mod draft_model;
mod dtype;
mod gemma4;
pub mod gguf_summary;
mod heads;
mod hybrid;
mod latent;

use std::path::PathBuf;
use std::sync::Arc;

use candle_core::Device;

use crate::model::drafters::eagle3;
use crate::model::drafters::eagle3::Plan;
use crate::model::drafters::mtp::CandleMtp;
use crate::model::drafters::mtp::file::MtpConfig;
use crate::model::families::gemma4::assistant;
use crate::model::families::llama::mimo;
use crate::model::families::llama::{Llama, LlamaWeights, device_name};
use crate::model::families::qwen35::DraftVocab;
use crate::model::files::source::Source;
use crate::model::load::draft_model;
use crate::model::memory;
use crate::model::memory::Need;
use crate::model::native::{NativeCpu, NativeLlama, NativeMtp};
use crate::model::nn::block::WeightType;
use crate::model::nn::config::LlamaConfig;
use crate::model::nn::matmul_backend::Held;
use crate::model::text::template::ChatTemplate;
use crate::model::text::tokenizer::TextCodec;
use crate::model::{Model, ModelError, ModelSpec, MtpModule};
use crate::protocol::{DrafterInfo, DrafterKind};

use self::dtype::{check_dtype, held_dtype, weight_type};

pub use self::device::DeviceChoice;
use self::heads::{Heads, names_head};

/// What to load, and how.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The target: a GGUF file, or a folder with `config.json` and safetensors.
    pub target: PathBuf,
    /// Sha256 of the file, when known.
    pub sha256: Option<String>,
    /// In what its weights are held.
    pub dtype: Dtype,
    /// Where it runs.
    pub device: DeviceChoice,
    /// What computes it.
    pub backend: Backend,
    /// Threads of the native backend; none measures how many pay.
    pub threads: Option<usize>,
    /// Positions its cache holds; none takes what the model was made for, at most 4,096.
    pub ctx_len: Option<usize>,
    /// The MTP module, or the stack of them; none for plain decoding.
    pub mtp: Option<MtpRecipe>,
    /// A second model that drafts: a file or folder as for the target.
    pub draft_model: Option<PathBuf>,
    /// How rejected rows are taken back where layers are recurrent.
    pub rollback: Rollback,
    /// Tokens that a module which comes with the target may propose; none = all.
    pub draft_vocab: Option<DraftVocab>,
}

/// How rejected rows are taken back where layers are recurrent. Either way the states are the same to the
/// bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rollback {
    /// A copy of the state behind each row of a verify pass.
    #[default]
    Snapshots,
    /// The rows' inputs are kept, and the states worked out again: little memory, a little time.
    Replay,
}

/// Context length when none is asked for: enough for a long chat, small enough for a laptop.
pub const DEFAULT_CTX: usize = 4096;

/// An MTP module's files.
#[derive(Clone, Debug)]
pub struct MtpRecipe {
    /// As it is called.
    pub name: String,
    /// Safetensors bytes.
    pub weights: Arc<[u8]>,
    /// `config.json`.
    pub config: Arc<[u8]>,
    /// Of the weights, lower-case hex.
    pub sha256: Option<String>,
    /// Whether a module that does not fit the target is an error; otherwise it is left out with a
    /// notice.
    pub required: bool,
}

/// In what a target's weights are held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dtype {
    /// What is fastest on the device.
    #[default]
    Auto,
    /// As stored, and the file must be Q4_1.
    Q4_1,
    /// As the file stores them, whatever that is.
    Stored,
    /// Widened to f32.
    F32,
    /// Rounded to bf16.
    Bf16,
}

/// What computes a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// Native on a CPU where it supports the file and the dtype, else candle.
    #[default]
    Auto,
    /// candle: any device, any dtype.
    Candle,
    /// The program's own CPU kernels.
    Native,
}

/// Everything that a recipe makes.
pub struct Loaded {
    /// The target, its cache empty.
    pub target: Box<dyn Model>,
    /// Text to tokens and back.
    pub codec: TextCodec,
    /// The chat template, when the file has one.
    pub template: Option<ChatTemplate>,
    /// The MTP module, its cache empty, and what it is.
    pub mtp: Option<(Box<dyn MtpModule>, DrafterInfo)>,
    /// Modules for depths 2, 3 …, when the module is a stack; their caches are empty.
    pub deeper: Vec<Box<dyn MtpModule>>,
    /// The draft model, its cache empty, and what it is; or why it was left out.
    pub draft_model: Option<Result<DraftModel, String>>,
    /// What the user should know: a drafter that was left out, say.
    pub notice: Option<String>,
    /// Why another backend runs than one would expect.
    pub backend_notice: Option<String>,
    /// What of the recipe and of the model's files was left aside or guessed, a sentence each.
    pub aside: Vec<String>,
}

/// A second model that drafts.
pub type DraftModel = (Box<dyn Model>, DrafterInfo);

/// Loads what a recipe names. `progress` hears (what, done, in all).
///
/// # Errors
/// The first thing that is missing, damaged or not supported.
pub fn load(recipe: &Recipe, progress: &mut dyn FnMut(&str, u64, u64)) -> Result<Loaded, ModelError> {
    progress("tokenizer", 0, 1);
    let source = Source::open(&recipe.target)?;
    let config = source.config()?;
    let codec = source.codec()?;
    if codec.len() > config.vocab {
        return Err(ModelError::Metadata(format!(
            "the tokenizer has {} tokens and the model embeds {}; the files do not belong together",
            codec.len(),
            config.vocab
        )));
    }
    let (template, broken) = source.template_or_why(&codec)?;
    let ctx_len = recipe.ctx_len.unwrap_or(DEFAULT_CTX.min(config.context_length));
    if ctx_len > config.context_length {
        return Err(ModelError::Metadata(format!(
            "a context of {ctx_len} was asked for and this model was made for {}; lower --ctx",
            config.context_length
        )));
    }
    let Heads { head, assistant, refused } = Heads::wanted(recipe, &config)?;
    let job =
        Job { recipe, source: &source, config: &config, ctx_len, head: head.as_ref(), assistant: assistant.as_ref() };
    let (target, mtp, backend_notice) = load_backend(&job, progress)?;
    let (mtp, notice) = match (refused.or(mtp), recipe.mtp.as_ref()) {
        // whatever is wrong with a draft model, decoding goes on without it
        (Some(Err(error)), _) if names_head(recipe) => (None, Some(format!("no drafter, decoding plainly: {error}"))),
        (Some(Err(error)), Some(mtp)) if !mtp.required => {
            (None, Some(format!("no drafter, decoding plainly: {error}")))
        }
        (mtp, _) => (mtp.transpose()?, None),
    };
    let (mtp, deeper) = match mtp {
        Some((mut modules, info)) if !modules.is_empty() => {
            let first = modules.remove(0);
            (Some((first, info)), modules)
        }
        _ => (None, Vec::new()),
    };
    let draft_model = draft_model::load(recipe, (&codec, ctx_len), progress);
    let aside = source.aside().into_iter().chain(broken.map(|why| aside::template(&why)));
    let aside = aside.chain(aside::draft_vocab(recipe, &config, mtp.is_some())).collect();
    Ok(Loaded { target, codec, template, mtp, deeper, draft_model, notice, backend_notice, aside })
}

/// Hears (what is being loaded, units done, units in all).
type Progress<'a> = dyn FnMut(&str, u64, u64) + 'a;
/// One module per depth, the first first.
pub(super) type Drafting = (Vec<Box<dyn MtpModule>>, DrafterInfo);
type TargetAndDrafter = (Box<dyn Model>, Option<Result<Drafting, ModelError>>);

/// What a backend loads from.
struct Job<'a> {
    recipe: &'a Recipe,
    source: &'a Source,
    config: &'a LlamaConfig,
    ctx_len: usize,
    /// An EAGLE-3 head in the MTP module's place.
    head: Option<&'a Plan>,
    /// An assistant in the MTP module's place.
    assistant: Option<&'a assistant::Plan>,
}

impl Job<'_> {
    /// What the target is, where candle computes what is between its matrices at least.
    fn spec(&self, held: &Held, dtype: &str, device: &Device) -> ModelSpec {
        let mut info = self.source.describe(self.config);
        info.sha256.clone_from(&self.recipe.sha256);
        let native = held.native();
        ModelSpec {
            info,
            ctx_len: self.ctx_len,
            backend: if native.is_some() { "native" } else { "candle" },
            device: native.map_or_else(|| device_name(device).to_owned(), |cpu| format!("cpu ({})", cpu.isa())),
            dtype: dtype.to_owned(),
            threads: native.map_or_else(candle_core::utils::get_num_threads, NativeCpu::threads),
        }
    }

    /// Whether the target's own modules draft: unless others are asked for by name, or none at all.
    fn brings_modules(&self) -> bool {
        let others = self.recipe.mtp.as_ref().is_none_or(|mtp| mtp.required) || names_head(self.recipe);
        !others && mimo::modules(self.source, self.config) > 0
    }

    /// The MTP module, unless a head was to take its place.
    fn module(&self) -> Option<&MtpRecipe> {
        self.recipe.mtp.as_ref().filter(|_| !names_head(self.recipe))
    }

    /// What weights and cache take; `kv_size` is the size of a number in the cache.
    fn need(&self, held: WeightType, kv_size: u64) -> Need {
        let Job { recipe, source, config, ctx_len, .. } = *self;
        // tables of which rows are looked up stay as they are stored
        let sized = |size: u64| {
            size * (config.matrix_weights() - config.looked_up_weights()) + gemma4::looked_up_bytes(source, config)
        };
        let (weights, dtype) = match held {
            WeightType::F32 => (sized(4), "f32".to_owned()),
            WeightType::Bf16 => (sized(2), "bf16".to_owned()),
            WeightType::Stored if source.stored_dtype() == "f8_e4m3" => (sized(2), "bf16".to_owned()),
            WeightType::Stored => (source.tensor_bytes(), source.stored_dtype()),
        };
        let kv = config.cached_values() * kv_size * ctx_len as u64;
        // the present state, and a copy for each row of a round of default length
        let copies = if recipe.rollback == Rollback::Replay { 6 } else { 23 }; // base, present, marks, 17 rows
        let states = config.hybrid.as_ref().map_or(0, |hybrid| copies * hybrid.state_bytes());
        let need = Need { weights, dtype, cache: kv + states, ctx_len };
        latent::with_modules(self, need, held)
    }
}

/// Target, drafter, and why the native backend does not run them where it was not asked for by name.
type OnBackend = (Box<dyn Model>, Option<Result<Drafting, ModelError>>, Option<String>);

fn load_backend(job: &Job<'_>, progress: &mut Progress<'_>) -> Result<OnBackend, ModelError> {
    let Job { recipe, source, .. } = *job;
    check_dtype(recipe.dtype, source)?;
    let without = |(target, mtp): TargetAndDrafter| (target, mtp, None);
    if recipe.backend == Backend::Candle || (recipe.backend == Backend::Auto && !suits_native(recipe)) {
        return load_candle(job, progress).map(without);
    }
    match load_native(job, progress) {
        // a file that the native kernels decline still runs on candle, unless they were asked for
        Err(ModelError::Unsupported(reason)) if recipe.backend == Backend::Auto => {
            let loaded = load_candle(job, progress).map_err(|error| match error {
                ModelError::DoesNotFit(figures) => ModelError::DoesNotFit(format!("{figures} ({reason})")),
                error => error,
            });
            // what the reason advises is done
            let reason = reason.split_once("; ").map_or(reason.as_str(), |(reason, _)| reason);
            loaded.map(|(target, mtp)| (target, mtp, Some(format!("candle runs this target: {reason}"))))
        }
        loaded => loaded.map(without),
    }
}

/// The native backend runs weights as they are stored, on the CPU.
fn suits_native(recipe: &Recipe) -> bool {
    let stored = matches!(recipe.dtype, Dtype::Auto | Dtype::Stored | Dtype::Q4_1);
    stored && matches!(recipe.device.open(), Ok(Device::Cpu))
}

fn load_native(job: &Job<'_>, progress: &mut Progress<'_>) -> Result<TargetAndDrafter, ModelError> {
    let recipe = job.recipe;
    if !suits_native(recipe) {
        return Err(ModelError::Unsupported(
            "the native backend runs stored weights on the CPU; choose --backend candle for another dtype or device"
                .into(),
        ));
    }
    let is_mixed = job.config.architecture.is_mixed();
    job.need(WeightType::Stored, if is_mixed { 4 } else { 2 }).check(fit::available())?;
    if is_mixed {
        // matrices run on the native kernels, what is between them row by row
        let held = Held::Native(NativeCpu::new(recipe.threads));
        return hybrid::load(job, (held, held_dtype(job.source), &Device::Cpu), progress);
    }
    progress("target", 0, 1);
    let mut target = NativeLlama::load(job.source, job.ctx_len, recipe.threads)?;
    target.set_sha256(recipe.sha256.clone());
    progress("drafter", 0, 1);
    let mtp = match job.head {
        Some(head) => Some(eagle::native(head, &target)),
        None if job.brings_modules() => Some(mimo::native(job.source, job.config, &target)),
        None => job.module().map(|mtp| load_native_mtp(mtp, job.config, &target)),
    };
    Ok((Box::new(target), mtp))
}

fn load_native_mtp(
    recipe: &MtpRecipe,
    target_config: &LlamaConfig,
    target: &NativeLlama,
) -> Result<Drafting, ModelError> {
    let config = MtpConfig::from_json(&recipe.config)?;
    config.block_config(target_config)?; // refuses a module that was made for another target
    let depths = 0..config.num_nextn_predict_layers;
    let modules = depths.map(|depth| NativeMtp::load_depth(&recipe.weights, &config, target, depth));
    let modules = modules.collect::<Result<Vec<_>, _>>()?;
    let info = DrafterInfo {
        kind: DrafterKind::Mtp,
        name: recipe.name.clone(),
        sha256: recipe.sha256.clone(),
        dtype: modules.first().map_or("none", NativeMtp::dtype).to_owned(),
        weight_bytes: modules.iter().map(|module| module.weight_bytes() as u64).sum(),
        kv_bytes_per_token: modules.iter().map(NativeMtp::kv_bytes_per_token).sum(),
        draft_vocab: config.draft_vocab_size as u32,
        context_vocab: config.context_vocab_size as u64,
    };
    Ok((modules.into_iter().map(|module| Box::new(module) as _).collect(), info))
}

fn load_candle(job: &Job<'_>, progress: &mut Progress<'_>) -> Result<TargetAndDrafter, ModelError> {
    let Job { recipe, source, config, ctx_len, .. } = *job;
    let device = recipe.device.open()?;
    let (held, dtype) = weight_type(recipe.dtype, source, &device);
    if device.is_cpu() {
        job.need(held, 4).check(fit::available())?;
    }
    if config.architecture.is_mixed() {
        return hybrid::load(job, (Held::Candle(held), dtype, &device), progress);
    }
    let spec = job.spec(&Held::Candle(held), &dtype, &device);
    let mut on_block = |done: usize, total: usize| progress("target", done as u64, total as u64);
    let weights = Arc::new(LlamaWeights::load(source, ctx_len, held, &device, &mut on_block)?);
    progress("drafter", 0, 1);
    let mtp = match job.head {
        Some(head) => Some(eagle::candle(head, &weights, ctx_len)),
        None if job.brings_modules() => Some(mimo::candle(source, &weights, (held, &spec.dtype), ctx_len)),
        None => job.module().map(|mtp| load_candle_mtp(mtp, &weights, ctx_len)),
    };
    Ok((Box::new(Llama::new(weights, spec)?), mtp))
}

fn load_candle_mtp(recipe: &MtpRecipe, target: &Arc<LlamaWeights>, ctx_len: usize) -> Result<Drafting, ModelError> {
    let config = MtpConfig::from_json(&recipe.config)?;
    let depths = 0..config.num_nextn_predict_layers;
    let modules =
        depths.map(|depth| CandleMtp::load_depth((&recipe.weights, depth), &config, Arc::clone(target), ctx_len));
    let modules = modules.collect::<Result<Vec<_>, _>>()?;
    let info = DrafterInfo {
        kind: DrafterKind::Mtp,
        name: recipe.name.clone(),
        sha256: recipe.sha256.clone(),
        dtype: "f32".to_owned(),
        weight_bytes: modules.iter().map(CandleMtp::bytes).sum(),
        kv_bytes_per_token: modules.iter().map(CandleMtp::kv_bytes_per_slot).sum(),
        draft_vocab: config.draft_vocab_size as u32,
        context_vocab: config.context_vocab_size as u64,
    };
    Ok((modules.into_iter().map(|module| Box::new(module) as _).collect(), info))
}
