//! Draft modules in folders of their own, which `--draft-model` names and which replace the MTP module.

use std::path::Path;

use crate::ModelError;
use crate::drafters::{dflash, eagle3};
use crate::families::gemma4::assistant;
use crate::files::{GgufFile, SideFiles};
use crate::interfaces::{CheckedModule, FamilyConfig, ModuleKind};
use crate::load::mtp_sidecar::MtpSidecar;
use crate::options::LoadOptions;

/// The kinds.
pub static MODULE_KINDS: &[&dyn ModuleKind] =
    &[&dflash::BlockDrafters, &eagle3::Eagle3, &assistant::AssistantKind, &MtpSidecar];

/// The kind of module that a `config.json` describes; `None` for a model or an MTP module.
#[must_use]
pub fn kind_of(json: &[u8]) -> Option<&'static dyn ModuleKind> {
    MODULE_KINDS.iter().copied().find(|kind| kind.is_one(json))
}

/// The kind of module that a GGUF file holds.
#[must_use]
pub fn kind_of_gguf(gguf: &GgufFile) -> Option<&'static dyn ModuleKind> {
    MODULE_KINDS.iter().copied().find(|kind| kind.is_in(gguf))
}

/// Why a module is not opened as a model.
pub(super) fn is_no_model(path: &Path, kind: &dyn ModuleKind) -> ModelError {
    ModelError::Unsupported(format!(
        "{} holds {}, which {}: name it with --draft-model",
        path.display(),
        kind.title(),
        kind.purpose()
    ))
}

/// The kind of module in a folder or GGUF file.
#[must_use]
pub fn kind_in(folder: &Path) -> Option<&'static dyn ModuleKind> {
    if folder.is_file() {
        return kind_of_gguf(&GgufFile::open_part(folder).ok()?);
    }
    kind_of(&SideFiles::of(folder).read("config.json").ok()??)
}

/// Whether a kind of module runs from GGUF files of this architecture.
#[must_use]
pub fn runs_from_gguf(architecture: &str) -> bool {
    MODULE_KINDS.iter().any(|kind| kind.architectures().contains(&architecture))
}

/// The kind of module that `--draft-model` names; `None` for a model, or without the option.
#[must_use]
pub fn requested(options: &LoadOptions) -> Option<&'static dyn ModuleKind> {
    kind_in(options.draft_model.as_deref()?)
}

/// The module that `--draft-model` names, checked against the target; a problem with it leaves the target without a
/// drafter.
pub type Requested = Option<Result<Box<dyn CheckedModule>, ModelError>>;

/// Opens the module that `--draft-model` names.
///
/// # Errors
/// [`ModelError::Unsupported`] if another module is requested as well.
pub fn open(options: &LoadOptions, target: &dyn FamilyConfig) -> Result<Requested, ModelError> {
    let (Some(folder), Some(kind)) = (options.draft_model.as_deref(), requested(options)) else {
        return Ok(None);
    };
    if options.mtp.as_ref().is_some_and(|mtp| mtp.required) {
        return Err(ModelError::Unsupported(format!(
            "--mtp names a module and --draft-model {}, and one of them can read the target's states; leave one out",
            kind.title()
        )));
    }
    Ok(Some(kind.open(folder, target)))
}
