//! What draft modules in files of their own implement.

use std::fmt::Display;
use std::path::Path;

use serde_json::Value;

use crate::ModelError;
use crate::block_module::LoadedModules;
use crate::files::GgufFile;
use crate::interfaces::family::{FamilyConfig, LoadContext, LoadedTarget};

/// A kind of draft module in files of its own, which replaces the MTP module.
pub trait ModuleKind: Sync {
    /// With its article, e.g. `an EAGLE-3 head`.
    fn title(&self) -> &'static str;

    /// Its field in the JSON form of `models info`.
    fn field(&self) -> &'static str;

    /// What it drafts for, as a clause after its title.
    fn purpose(&self) -> &'static str;

    /// Whether a `config.json` is that of such a module.
    fn is_one(&self, json: &[u8]) -> bool;

    /// `general.architecture` of GGUF files that are such modules; none if that does not tell.
    fn architectures(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether a GGUF file holds such a module.
    fn is_in(&self, gguf: &GgufFile) -> bool {
        gguf.text("general.architecture").is_some_and(|own| self.architectures().contains(&own))
    }

    /// Checks a `config.json` before weights are downloaded.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] or [`ModelError::Metadata`] naming the key.
    fn check(&self, json: &[u8]) -> Result<(), ModelError>;

    /// Opens a folder or GGUF file for a target, before anything large is read.
    ///
    /// # Errors
    /// If it is damaged, not supported, or made for another target.
    fn open(&self, folder: &Path, target: &dyn FamilyConfig) -> Result<Box<dyn CheckedModule>, ModelError>;

    /// Its figures, from its headers.
    ///
    /// # Errors
    /// When it is damaged or not supported.
    fn card(&self, folder: &Path) -> Result<Box<dyn ModuleCard>, ModelError>;
}

/// A draft module that fits its target.
pub trait CheckedModule {
    /// Loads it for the target.
    ///
    /// # Errors
    /// If a tensor is missing, has a wrong shape or is damaged, or memory is short.
    fn load(&self, target: &dyn LoadedTarget, context: &LoadContext<'_>) -> Result<LoadedModules, ModelError>;
}

/// Figures of a draft module: `models info`.
pub trait ModuleCard: Display {
    /// The JSON form.
    fn json(&self) -> Value;
}
