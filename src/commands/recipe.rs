//! From arguments to what the engine loads: the target, the module that drafts, a second model.
//!
//! Invariant: everything that can be rejected without loading weights is rejected here, before the engine starts.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use draftscope::cli::{ModelArgs, Threads};
use draftscope::host::file_access;
use draftscope::model::files::SideFiles;
use draftscope::model::load::gguf_drafting::GgufDrafting;
use draftscope::model::load::named_module::{kind_in, kind_of};
use draftscope::model::load::preflight::preflight;
use draftscope::model::options::{DraftVocab, LoadOptions, ModuleFile};
use draftscope::protocol::{DrafterKind, Settings, TokenId};
use draftscope::session::text::printable;
use draftscope::store::{Store, StoreError, Terminal, sidecars};
use sha2::{Digest, Sha256};

/// The module that comes with the program; made for the default model.
const MTP_WEIGHTS: &[u8] = include_bytes!("../../assets/mtp/smollm2-135m/mtp.fp8.safetensors");
const MTP_CONFIG: &[u8] = include_bytes!("../../assets/mtp/smollm2-135m/config.json");
const MTP_NAME: &str = "smollm2-135m-mtp-9 (fp8)";

/// What the arguments load for a run that begins with these settings. A draft model that cannot be used is an error; on a
/// screen, where another one can be chosen, the caller makes it a notice.
pub(crate) fn recipe(args: &ModelArgs, settings: &Settings) -> Result<LoadOptions> {
    // loaded for every drafter, so that the user can switch to it
    let mtp = if args.drafter == DrafterKind::None.name() { None } else { Some(mtp_recipe(args.mtp.as_deref())?) };
    let store = store();
    let target = store.resolve(args.model.as_deref(), &mut Terminal::default())?;
    let draft_model = match &args.draft_model {
        Some(model) => Some(drafter(&store, model)?),
        None => sidecar(&target, args),
    };
    Ok(LoadOptions {
        sha256: remembered_sha256(&store, &target),
        target,
        dtype: args.dtype,
        device: args.device,
        adapter: args.adapter.clone(),
        backend: args.backend,
        threads: match args.threads {
            Threads::Auto => None,
            Threads::Count(count) => Some(count.into()),
        },
        ctx_len: args.ctx.map(|ctx| ctx as usize),
        mtp,
        draft_model_required: args.draft_model.is_some(),
        vocab_method: args.vocab_method.0,
        divides_by_q: settings.divides_by_q(),
        draft_model,
        rollback: args.rollback,
        draft_vocab: args.draft_vocab.as_deref().map(draft_vocab).transpose()?,
        device_memory: super::files::state_file("devices.json"),
        think: args.think,
        special_tokens: args.special_tokens,
        pass_form: None,
    })
}

/// The drafter in a file beside the target, if one runs and the target has no module of its own; those that do not run
/// are named.
fn sidecar(target: &Path, args: &ModelArgs) -> Option<PathBuf> {
    let drafts_by_module = args.drafter.split('+').any(|kind| kind == DrafterKind::Mtp.name());
    let found = if drafts_by_module && args.mtp.is_none() { sidecars(target) } else { Vec::new() };
    if found.is_empty() || GgufDrafting::read(target).is_none_or(|target| target.modules > 0) {
        return None;
    }
    let (runs, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|file| kind_in(file).is_some());
    let name = |file: &Path| printable(&file.file_name().unwrap_or_default().to_string_lossy()).into_owned();
    for file in &others {
        let role = GgufDrafting::read(file).map_or("no GGUF file", |drafting| drafting.role.title());
        super::output::say(&format!(
            "{} lies beside the model and is not used: it is {role}, which does not run here",
            name(file)
        ));
    }
    let first = runs.into_iter().next()?;
    super::output::say(&format!("{} lies beside the model and drafts for it", name(&first)));
    Some(first)
}

/// The second model; the store's own error message is about the target.
fn drafter(store: &Store, model: &Path) -> Result<PathBuf> {
    store.resolve(Some(model), &mut Terminal::default()).map_err(|error| match error {
        StoreError::Read { path, source } => {
            anyhow!("cannot read the draft model {}: {source}; check what --draft-model names", path.display())
        }
        error => error.into(),
    })
}

/// The store; it rejects an unsupported repository before its weights are fetched.
pub(crate) fn store() -> Store {
    let preflight = |folder: &Path| preflight(&SideFiles::of(folder)).map_err(|error| error.to_string());
    Store::from_env().with_preflight(preflight)
}

/// A number of tokens, all of them, or a file that lists them.
fn draft_vocab(value: &OsStr) -> Result<DraftVocab> {
    if let Some(count) = value.to_str().and_then(|text| text.parse().ok()) {
        return Ok(DraftVocab::First(count));
    }
    let text = value.to_string_lossy();
    if text == "all" {
        return Ok(DraftVocab::All);
    }
    const MOST: u64 = 16 << 20;
    let list =
        file_access::read_text(Path::new(value), MOST).with_context(|| format!("--draft-vocab: cannot read {text}"))?;
    let ids = list.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(|(at, line)| {
        line.trim()
            .parse()
            .map(TokenId)
            .with_context(|| format!("--draft-vocab: line {} of {text} is no token id", at + 1))
    });
    Ok(DraftVocab::Tokens(ids.collect::<Result<_>>()?))
}

/// The sha256 that a model in the cache was checked against; files elsewhere are not hashed at start.
pub(crate) fn remembered_sha256(store: &Store, target: &Path) -> Option<String> {
    let entries = store.list().ok()?;
    entries.into_iter().find(|e| store.cache().dir().join(&e.file) == target)?.sha256
}

/// Largest file of an MTP module that is read, in bytes.
const MOST_MODULE: u64 = 16 << 30;

pub(super) fn mtp_recipe(folder: Option<&Path>) -> Result<ModuleFile> {
    let (name, weights, config): (_, Arc<[u8]>, Arc<[u8]>) = match folder {
        None => (MTP_NAME.to_owned(), MTP_WEIGHTS.into(), MTP_CONFIG.into()),
        Some(folder) => {
            let read = |path: PathBuf| {
                file_access::read_regular(&path, MOST_MODULE).with_context(|| format!("cannot read {}", path.display()))
            };
            let config = read(folder.join("config.json"))?;
            if let Some(kind) = kind_of(&config) {
                bail!("{} contains {}; name it with --draft-model", folder.display(), kind.title());
            }
            let weights = read(weights_in(folder)?)?;
            (folder.display().to_string(), weights.into(), config.into())
        }
    };
    let sha256 = Some(Sha256::digest(&weights).iter().map(|byte| format!("{byte:02x}")).collect());
    Ok(ModuleFile { name, weights, config, sha256, required: folder.is_some() })
}

/// The first `.safetensors` file of a folder, by name.
fn weights_in(folder: &Path) -> Result<PathBuf> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read the folder {}", folder.display()))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let weights = paths.filter(|path| path.extension().is_some_and(|e| e == "safetensors")).min();
    weights.with_context(|| format!("{} has no .safetensors file", folder.display()))
}
