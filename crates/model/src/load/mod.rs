//! From [`LoadOptions`] to a running target, its tokenizer and its drafters.
//!
//! Options are plain data and may cross threads; models may not, so the thread that runs a model loads it.

#[cfg(feature = "gpu")]
mod auto_device;
mod backend;
mod batch_test;
pub mod card;
mod check;
mod choose_device;
mod draft_model;
mod dtype;
pub mod gguf_drafting;
mod gguf_kind;
pub mod gguf_summary;
mod memory_need;
mod mtp_sidecar;
pub mod named_module;
#[cfg(feature = "gpu")]
mod on_gpu;
mod on_native;
mod on_reference;
mod open;
pub mod preflight;
mod server_flags;
mod warnings;

use std::sync::Arc;

use crate::block_module::{BlockModule, LoadedModules};
use crate::drafters::mtp;
use crate::interfaces::{LoadContext, LoadedTarget, Modules, NoSharing, Progress};
use crate::options::{DEFAULT_CTX, LoadOptions};
use crate::other_vocab::strings::Strings;
use crate::row_by_row::RowByRow;
use crate::text::{template::ChatTemplate, tokenizer::TextCodec};
use crate::{DraftModule, Model, ModelError};
use draftscope_protocol::{DrafterInfo, MemoryAccount, TokenId};

use self::backend::OnBackend;
pub use self::check::check;
use self::choose_device::load_target;
use self::named_module::Requested;
pub use self::open::OpenModel;
pub use self::server_flags::ServerFlags;

/// Everything that is loaded.
pub struct Loaded {
    /// The target, its cache empty.
    pub target: Box<dyn Model>,
    /// Text to tokens and back.
    pub codec: Arc<TextCodec>,
    /// The chat template, if the file has one; it may be one that does not run, which says so when it is rendered.
    pub template: Option<ChatTemplate>,
    /// The draft module, its cache empty, and its header entry.
    pub mtp: Option<(Box<dyn DraftModule>, DrafterInfo)>,
    /// Modules for depths 2, 3 …, if the module is a stack; their caches are empty.
    pub deeper: Vec<Box<dyn DraftModule>>,
    /// The block drafter in place of a module, its cache empty, and its header entry.
    pub block: Option<(Box<dyn BlockModule>, DrafterInfo)>,
    /// The draft model, its cache empty, and its header entry; or why there is none.
    pub draft_model: Option<Result<DraftModel, String>>,
    /// How the draft model drafts.
    pub draft_form: DraftForm,
    /// Why there is no draft module.
    pub notice: Option<String>,
    /// Why another backend runs than one would expect.
    pub backend_notice: Option<String>,
    /// Options and metadata that were ignored or guessed, a sentence each.
    pub warnings: Vec<String>,
    /// What all of it takes in memory.
    pub memory: MemoryAccount,
}

/// A second model that drafts.
pub type DraftModel = (Box<dyn Model>, DrafterInfo);

/// How a second model drafts.
#[derive(Clone, Default)]
pub enum DraftForm {
    /// One token of the target after the other.
    #[default]
    OneByOne,
    /// All positions in one pass, with this token in place of drafts: it was trained for that (PARD).
    Masks(TokenId),
    /// Text in its own tokens, of which the target's tokenizer makes tokens.
    Strings(Arc<Strings>),
}

/// Loads the target and its drafters. `progress` is called with (what, done, total).
///
/// # Errors
/// The first thing that is missing, damaged or not supported.
pub fn load(options: &LoadOptions, progress: &mut Progress<'_>) -> Result<Loaded, ModelError> {
    progress("tokenizer", 0, 1);
    crate::thread_pool::start();
    let opened = OpenModel::open(&options.target)?;
    let codec = Arc::new(opened.checked()?.with_special_names(options.special_tokens));
    let most = opened.transformer().context_length;
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
    let OnBackend { target: mut loaded, notice: mut backend_notice, account, runs_on, buffers } =
        load_target(&context, progress)?;
    let mut verified = loaded.self_test()?.map(|why| (1, why));
    progress("drafter", 0, 1);
    let (modules, notice) = draft_modules(&context, requested, loaded.as_ref())?;
    let (mut mtp, mut deeper, mut block) = (None, Vec::new(), None);
    match modules {
        Some(LoadedModules::Chain(modules, info)) => {
            let mut modules = modules.into_iter();
            mtp = modules.next().map(|first| (first, info));
            deeper = modules.collect();
        }
        Some(LoadedModules::Block(drafter, info)) => block = Some((drafter, info)),
        None => {}
    }
    let mut target = loaded.into_model()?;
    if runs_on.needs_batch_test() {
        verified = batch_test::run(target.as_mut())?;
    }
    if let Some((rows, why)) = verified {
        target = Box::new(RowByRow::at_most(target, rows));
        backend_notice = Some(backend_notice.map_or(why.clone(), |notice| format!("{notice}; {why}")));
    }
    let info = mtp.as_ref().map(|(_, info)| info).or(block.as_ref().map(|(_, info)| info));
    let memory = memory_need::loaded(account, target.spec(), info);
    let on_gpu = buffers.is_some();
    let memory = buffers.map_or(memory, |made| memory_need::with_buffers(memory, made()));
    let of_target = (&codec, ctx_len, target.spec().info.vocab);
    let beside = draft_model::load(&runs_on.of_draft_model(options), of_target, progress)?;
    let memory =
        beside.iter().filter_map(|beside| beside.memory.as_ref()).fold(memory, MemoryAccount::with_draft_model);
    let (draft_model, draft_form, of_draft_model) = match beside {
        Some(beside) => (Some(beside.model), beside.form, beside.warning),
        None => (None, DraftForm::OneByOne, None),
    };
    let (template, broken) = template.finish_or_why()?;
    let warnings = opened.warnings().into_iter().chain(broken.as_deref().map(warnings::template));
    let has_none = template.is_none() && broken.is_none();
    let warnings = warnings.chain(has_none.then(warnings::no_template));
    let warnings = warnings.chain(warnings::think(options, template.as_ref()));
    let warnings = warnings.chain(warnings::rollback(options, config, on_gpu)).chain(of_draft_model);
    let warnings = warnings.chain(warnings::draft_vocab(options, config, mtp.is_some())).collect();
    let template = template.or_else(|| broken.map(ChatTemplate::broken));
    Ok(Loaded {
        target,
        codec,
        template,
        mtp,
        deeper,
        block,
        draft_model,
        draft_form,
        notice,
        backend_notice,
        warnings,
        memory,
    })
}

/// The module that drafts, or why there is none.
type Drafting = (Option<LoadedModules>, Option<String>);

/// Loads the modules that draft: the one that `--draft-model` names, else the target's own, else a module file.
fn draft_modules(
    context: &LoadContext<'_>,
    requested: Requested,
    target: &dyn LoadedTarget,
) -> Result<Drafting, ModelError> {
    if let Some(named) = requested {
        return match named.and_then(|module| module.load(target, context)) {
            Ok(modules) => Ok((Some(modules), None)),
            Err(error) if context.options.draft_model_required => Err(ModelError::DraftModel(Box::new(error))),
            Err(error) => Ok((None, Some(error.to_string()))),
        };
    }
    let Some(file) = &context.options.mtp else {
        return Ok((None, None));
    };
    if file.required {
        return Ok((Some(module_file(context, target)?.into()), None));
    }
    let modules = target.own_modules(context).unwrap_or_else(|| module_file(context, target));
    Ok(match modules {
        Ok(modules) => (Some(modules.into()), None),
        Err(error) => (None, Some(error.to_string())),
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
    mtp::load(file, &shared, context)
}
