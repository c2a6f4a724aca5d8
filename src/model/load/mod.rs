//! From [`LoadOptions`] to a running target, its tokenizer and its drafters.
//!
//! Options are plain data and may cross threads; models may not, so the thread that runs a model loads it.

pub mod card;
mod draft_model;
mod dtype;
pub mod gguf_drafting;
pub mod gguf_summary;
mod memory_need;
mod mtp_sidecar;
pub mod named_module;
mod open;
pub mod preflight;
mod server_flags;
mod warnings;

use candle_core::Device;

use crate::model::drafters::mtp;
use crate::model::interfaces::{self, LoadContext, LoadedTarget, Modules, NoSharing, Progress};
use crate::model::options::{Backend, DEFAULT_CTX, DeviceChoice, Dtype, LoadOptions, WeightType};
use crate::model::row_by_row::RowByRow;
use crate::model::text::{template::ChatTemplate, tokenizer::TextCodec};
use crate::model::{DraftModule, Model, ModelError, memory};
use crate::protocol::{DrafterInfo, MemoryAccount, TokenId};

use self::dtype::{check_dtype, weight_type};
use self::named_module::Requested;
pub use self::open::OpenModel;
pub use self::server_flags::ServerFlags;

/// Everything that is loaded.
pub struct Loaded {
    /// The target, its cache empty.
    pub target: Box<dyn Model>,
    /// Text to tokens and back.
    pub codec: TextCodec,
    /// The chat template, if the file has one.
    pub template: Option<ChatTemplate>,
    /// The draft module, its cache empty, and its header entry.
    pub mtp: Option<(Box<dyn DraftModule>, DrafterInfo)>,
    /// Modules for depths 2, 3 …, if the module is a stack; their caches are empty.
    pub deeper: Vec<Box<dyn DraftModule>>,
    /// The draft model, its cache empty, and its header entry; or why there is none.
    pub draft_model: Option<Result<DraftModel, String>>,
    /// Messages for the user, such as why there is no drafter.
    pub notice: Option<String>,
    /// Why another backend runs than one would expect.
    pub backend_notice: Option<String>,
    /// Options and metadata that were ignored or guessed, a sentence each.
    pub warnings: Vec<String>,
    /// What all of it takes in memory.
    pub memory: MemoryAccount,
}

/// Most special tokens that a tokenizer may name beyond the rows of the embedding.
const MAX_TOKENS_WITHOUT_ROW: usize = 8;

/// A second model that drafts.
pub type DraftModel = (Box<dyn Model>, DrafterInfo);

/// Loads the target and its drafters. `progress` is called with (what, done, total).
///
/// # Errors
/// The first thing that is missing, damaged or not supported.
pub fn load(options: &LoadOptions, progress: &mut Progress<'_>) -> Result<Loaded, ModelError> {
    progress("tokenizer", 0, 1);
    let opened = OpenModel::open(&options.target)?;
    let codec = opened.codec()?;
    let (vocab, most) = (opened.transformer().vocab, opened.transformer().context_length);
    // Gemma 3 has a token for a picture, for which the text model has no row
    let all_special = (vocab..codec.len()).all(|id| codec.piece(TokenId(id as u32)).special);
    if codec.len() > vocab && !(all_special && codec.len() - vocab <= MAX_TOKENS_WITHOUT_ROW) {
        return Err(ModelError::Metadata(format!(
            "the tokenizer has {} tokens and the model embeds {vocab}; the files do not belong together",
            codec.len()
        )));
    }
    let template = opened.compile_template(&codec, options.think);
    let ctx_len = options.ctx_len.unwrap_or(DEFAULT_CTX.min(most));
    if ctx_len > most {
        return Err(ModelError::Metadata(format!(
            "a context of {ctx_len} was asked for and this model was made for {most}; lower --ctx"
        )));
    }
    let config = opened.config.as_ref();
    let context = LoadContext { options, source: &opened.source, config, ctx_len, ends: codec.ends() };
    let requested = named_module::open(options, config)?;
    let OnBackend { target: loaded, notice: mut backend_notice, account } = load_target(&context, progress)?;
    let row_by_row = loaded.self_test()?;
    progress("drafter", 0, 1);
    let (modules, notice) = draft_modules(&context, requested, loaded.as_ref())?;
    let mut modules = modules.map(|(modules, info)| (modules.into_iter(), info));
    let mtp = modules.as_mut().and_then(|(modules, info)| Some((modules.next()?, info.clone())));
    let deeper = modules.map_or_else(Vec::new, |(modules, _)| modules.collect());
    let mut target = loaded.into_model()?;
    if let Some(why) = row_by_row {
        target = Box::new(RowByRow::new(target));
        backend_notice = Some(why);
    }
    let draft_model = draft_model::load(options, (&codec, ctx_len), progress)?;
    let (draft_model, beside) = draft_model.map_or((None, None), |(model, account)| (Some(model), account));
    let memory = memory_need::loaded(account, target.spec(), mtp.as_ref().map(|(_, info)| info));
    let memory = beside.iter().fold(memory, MemoryAccount::with_draft_model);
    let (template, broken) = template.finish_or_why()?;
    let warnings = opened.warning().into_iter().chain(broken.map(|why| warnings::template(&why)));
    let warnings = warnings.chain(warnings::think(options, &opened));
    let warnings = warnings.chain(warnings::draft_vocab(options, config, mtp.is_some())).collect();
    Ok(Loaded { target, codec, template, mtp, deeper, draft_model, notice, backend_notice, warnings, memory })
}

/// What drafts, and why nothing does.
type Drafting = (Option<Modules>, Option<String>);

/// Loads the modules that draft: the one that `--draft-model` names, else the target's own, else a module file.
fn draft_modules(
    context: &LoadContext<'_>,
    requested: Requested,
    target: &dyn LoadedTarget,
) -> Result<Drafting, ModelError> {
    let plain = |error: ModelError| format!("no drafter, decoding plainly: {error}");
    if let Some(named) = requested {
        return match named.and_then(|module| module.load(target, context)) {
            Ok(modules) => Ok((Some(modules), None)),
            Err(error) if context.options.draft_model_required => Err(ModelError::DraftModel(Box::new(error))),
            Err(error) => Ok((None, Some(plain(error)))),
        };
    }
    let Some(file) = &context.options.mtp else {
        return Ok((None, None));
    };
    if file.required {
        return Ok((Some(module_file(context, target)?), None));
    }
    let modules = target.own_modules(context).unwrap_or_else(|| module_file(context, target));
    Ok(match modules {
        Ok(modules) => (Some(modules), None),
        Err(error) => (None, Some(plain(error))),
    })
}

/// The MTP module that is named with `--mtp`, or the built-in one.
fn module_file(context: &LoadContext<'_>, target: &dyn LoadedTarget) -> Result<Modules, ModelError> {
    let no_file = || ModelError::Unsupported("no MTP module is named".into());
    let file = context.options.mtp.as_ref().ok_or_else(no_file)?;
    let shared = target.shared().map_err(|NoSharing { family, instead_of_module, .. }| {
        ModelError::Unsupported(format!(
            "the module {} is made for targets of the Llama kind; {family} {instead_of_module}",
            file.name
        ))
    })?;
    mtp::load(file, &shared)
}

/// A target, its memory, and why the native backend does not run it if that was not requested by name.
struct OnBackend {
    target: Box<dyn LoadedTarget>,
    account: MemoryAccount,
    notice: Option<String>,
}

fn load_target(context: &LoadContext<'_>, progress: &mut Progress<'_>) -> Result<OnBackend, ModelError> {
    let LoadContext { options, source, .. } = *context;
    check_dtype(options.dtype, source)?;
    if options.device == DeviceChoice::Gpu {
        return load_gpu(context, progress);
    }
    if options.adapter.is_some() {
        return Err(ModelError::Unsupported("--adapter names a GPU; add --device gpu".into()));
    }
    if options.backend == Backend::Candle || (options.backend == Backend::Auto && !suits_native(options)) {
        return load_candle(context, progress);
    }
    match load_native(context, progress) {
        // a file that the native kernels do not support still runs on candle, unless native was requested
        Err(ModelError::Unsupported(reason)) if options.backend == Backend::Auto => {
            let loaded = load_candle(context, progress).map_err(|error| match error {
                ModelError::DoesNotFit(figures) => ModelError::DoesNotFit(format!("{figures} ({reason})")),
                error => error,
            });
            // follow the advice of the message
            let reason = reason.split_once("; ").map_or(reason.as_str(), |(reason, _)| reason);
            let notice = Some(format!("candle runs this target: {reason}"));
            loaded.map(|loaded| OnBackend { notice, ..loaded })
        }
        loaded => loaded,
    }
}

/// Loads a target for the GPU backend, or says what runs there.
#[cfg(feature = "gpu")]
fn load_gpu(context: &LoadContext<'_>, progress: &mut Progress<'_>) -> Result<OnBackend, ModelError> {
    let LoadContext { options, source, config, .. } = *context;
    let stored = matches!(options.dtype, Dtype::Auto | Dtype::Stored | Dtype::Q4_1);
    if options.backend != Backend::Auto {
        return Err(ModelError::Unsupported("--backend is for the CPU; leave it out with --device gpu".into()));
    }
    if !stored {
        return Err(ModelError::Unsupported("the GPU backend runs weights as stored; leave --dtype out".into()));
    }
    if !config.runs_on_gpu() {
        return Err(ModelError::Unsupported(format!(
            "the GPU backend runs Llama, Qwen2, Qwen3, Gemma 3 and Qwen3.5 without experts, with weights as stored, and this is {} ({}); choose --device cpu",
            config.transformer().conventions.name,
            source.stored_dtype(),
        )));
    }
    let gpu = crate::model::gpu::device::open(options.adapter.as_deref())?;
    // memory of an integrated or software adapter is the machine's; that of others is checked by allocating it
    let need = memory_need::of(context, WeightType::Stored, true);
    if gpu.info().kind != draftscope_gpu::AdapterKind::Discrete {
        need.check(memory::available())?;
    }
    let target = config.load(context, interfaces::Backend::Gpu(gpu), progress)?;
    Ok(OnBackend { target, account: need.account, notice: None })
}

#[cfg(not(feature = "gpu"))]
fn load_gpu(_context: &LoadContext<'_>, _progress: &mut Progress<'_>) -> Result<OnBackend, ModelError> {
    Err(ModelError::Unsupported(
        "this build has no GPU backend; build with `--features gpu` or choose --device cpu".into(),
    ))
}

/// The native backend runs weights as stored, on the CPU.
fn suits_native(options: &LoadOptions) -> bool {
    let stored = matches!(options.dtype, Dtype::Auto | Dtype::Stored | Dtype::Q4_1);
    stored && matches!(options.device.open(), Ok(Device::Cpu))
}

fn load_native(context: &LoadContext<'_>, progress: &mut Progress<'_>) -> Result<OnBackend, ModelError> {
    if !suits_native(context.options) {
        return Err(ModelError::Unsupported(
            "the native backend runs stored weights on the CPU; choose --backend candle for another dtype or device"
                .into(),
        ));
    }
    let need = memory_need::of(context, WeightType::Stored, true);
    need.check(memory::available())?;
    let target = context.config.load(context, interfaces::Backend::Native, progress)?;
    Ok(OnBackend { target, account: need.account, notice: None })
}

fn load_candle(context: &LoadContext<'_>, progress: &mut Progress<'_>) -> Result<OnBackend, ModelError> {
    let device = context.options.device.open()?;
    let (weight_type, dtype) = weight_type(context.options.dtype, context.source, &device);
    let need = memory_need::of(context, weight_type, false);
    if device.is_cpu() {
        need.check(memory::available())?;
    }
    let target = context.config.load(context, interfaces::Backend::Candle(weight_type, dtype, &device), progress)?;
    Ok(OnBackend { target, account: need.account, notice: None })
}
