//! The MTP module of a model in a GGUF file of its own (`mtp-*.gguf`), which `--draft-model` names.
//!
//! The file has the tensors that a combined file has after its last layer, so the family reads them as its own.

use std::fmt::{self, Display};
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use crate::ModelError;
use crate::block_module::LoadedModules;
use crate::error::clean;
use crate::families;
use crate::files::{GgufFile, ModelFiles};
use crate::interfaces::{CheckedModule, FamilyConfig, LoadContext, LoadedTarget, ModuleCard, ModuleKind};
use crate::load::gguf_drafting::{GgufDrafting, GgufRole};

/// MTP modules in files of their own.
pub(super) struct MtpSidecar;

impl ModuleKind for MtpSidecar {
    fn title(&self) -> &'static str {
        "an MTP module in a file of its own"
    }

    fn field(&self) -> &'static str {
        "mtp_module"
    }

    fn purpose(&self) -> &'static str {
        "drafts for the model that it was cut from"
    }

    fn is_one(&self, _json: &[u8]) -> bool {
        false
    }

    fn is_in(&self, gguf: &GgufFile) -> bool {
        let architecture = gguf.text("general.architecture").unwrap_or("(none)");
        GgufDrafting::of(gguf, architecture).role == GgufRole::MtpModule
    }

    fn check(&self, _json: &[u8]) -> Result<(), ModelError> {
        Ok(())
    }

    fn open(&self, file: &Path, target: &dyn FamilyConfig) -> Result<Box<dyn CheckedModule>, ModelError> {
        let gguf = GgufFile::open(file)?;
        gguf.check_types()?;
        let architecture = gguf.text("general.architecture").unwrap_or("(none)").to_owned();
        let family = families::of_gguf(&architecture)?.names();
        let (own, width) = (target.transformer(), gguf.number(&format!("{architecture}.embedding_length")));
        let wrong = |what: String| {
            Err(ModelError::Unsupported(format!(
                "{} {what}; it drafts only for the model that it was cut from",
                file.display()
            )))
        };
        let name = own.conventions.name;
        if family.title != name && !family.gguf.iter().chain(family.json).any(|other| *other == name) {
            return wrong(format!("is the module of a {}, and the target is a {name}", family.title));
        }
        match width {
            Some(width) if width != own.d_model as u64 => {
                wrong(format!("reads states of width {width}, and the target's are {} wide", own.d_model))
            }
            _ => Ok(Box::new(Checked(ModelFiles::Gguf(gguf)))),
        }
    }

    fn card(&self, file: &Path) -> Result<Box<dyn ModuleCard>, ModelError> {
        let gguf = GgufFile::open(file)?;
        let architecture = gguf.text("general.architecture").unwrap_or("(none)");
        families::of_gguf(architecture)?;
        gguf.check_types()?;
        let width = gguf.number(&format!("{architecture}.embedding_length"));
        let (title, tensor_bytes) = (gguf.name(), gguf.tensor_bytes());
        Ok(Box::new(MtpSidecarCard { title, architecture: clean(architecture), width, tensor_bytes }))
    }
}

struct Checked(ModelFiles);

impl CheckedModule for Checked {
    fn load(&self, target: &dyn LoadedTarget, context: &LoadContext<'_>) -> Result<LoadedModules, ModelError> {
        let none = || ModelError::Unsupported("a target of this family reads no module from another file".into());
        let (modules, mut info) =
            target.own_modules(&LoadContext { source: &self.0, ..*context }).ok_or_else(none)??;
        info.name = self.0.name();
        Ok(LoadedModules::Chain(modules, info))
    }
}

/// Figures of such a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct MtpSidecarCard {
    /// Its name.
    title: String,
    /// Architecture of its target.
    architecture: String,
    /// Width of the target's states.
    width: Option<u64>,
    /// Bytes of the tensors.
    tensor_bytes: u64,
}

impl ModuleCard for MtpSidecarCard {
    fn json(&self) -> Value {
        serde_json::to_value(self).unwrap_or(Value::Null)
    }
}

impl Display for MtpSidecarCard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "module   {} (MTP, for a {} model", clean(&self.title), self.architecture)?;
        self.width.map_or(Ok(()), |width| write!(f, " of width {width}"))?;
        f.write_str("): name it with --draft-model")
    }
}
