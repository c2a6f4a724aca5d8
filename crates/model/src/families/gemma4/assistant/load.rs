//! Opening and loading an assistant.

use std::any::Any;
use std::path::Path;

use indicatif::DecimalBytes;

use crate::block_module::LoadedModules;
use crate::drafters::core;
use crate::error::name_of;
use crate::families::gemma4::Gemma4Config;
use crate::families::gemma4::assistant::{config::AssistantConfig, names};
use crate::files::{ConfigJson, Folder, GgufFile, ModelFiles, SideFiles};
use crate::interfaces::{CheckedModule, FamilyConfig, LoadContext, LoadedTarget};
use crate::native::NativeAssistant;
use crate::options::DraftVocab;
use crate::{ModelError, memory};

/// An assistant that fits its target, before anything large is read.
pub(super) struct CheckedAssistant {
    config: AssistantConfig,
    files: ModelFiles,
    name: String,
}

/// Opens a folder or a GGUF file whose tensors are all of types that run.
pub(super) fn open(path: &Path) -> Result<(AssistantConfig, ModelFiles), ModelError> {
    if path.is_file() {
        let gguf = GgufFile::open(path)?;
        gguf.check_types()?;
        return Ok((AssistantConfig::from_gguf(&gguf)?, ModelFiles::Gguf(gguf)));
    }
    let text = SideFiles::of(path).config()?;
    let config = AssistantConfig::from_json(&text)?;
    let folder = Folder::open(path, ConfigJson::parse(&text)?, names::tensor_name)?;
    Ok((config, ModelFiles::Folder(Box::new(folder))))
}

impl CheckedAssistant {
    /// Opens a folder or GGUF file for this target.
    pub(super) fn open(folder: &Path, target: &dyn FamilyConfig) -> Result<Self, ModelError> {
        let gemma = (target as &dyn Any).downcast_ref::<Gemma4Config>();
        let (sizes, Some(Gemma4Config { gemma, .. })) = (target.transformer(), gemma) else {
            return Err(ModelError::Unsupported(format!(
                "{} is an assistant of Gemma 4, and the target is of the family {}; leave --draft-model out",
                name_of(folder),
                target.transformer().conventions.name
            )));
        };
        let (config, files) = open(folder)?;
        config.check(gemma, (sizes.d_model, sizes.vocab))?;
        Ok(Self { config, files, name: name_of(folder) })
    }
}

/// Rejects weights that do not fit into `available` bytes; `None` = unknown.
fn check_fit(weights: u64, available: Option<u64>) -> Result<(), ModelError> {
    match available.filter(|available| weights > *available) {
        None => Ok(()),
        Some(available) => Err(ModelError::DoesNotFit(format!(
            "the assistant does not fit beside its target: its weights take {}, and {} of memory are free; choose a smaller target, or free some memory",
            DecimalBytes(weights),
            DecimalBytes(available)
        ))),
    }
}

impl CheckedModule for CheckedAssistant {
    fn load(&self, target: &dyn LoadedTarget, context: &LoadContext<'_>) -> Result<LoadedModules, ModelError> {
        let target = target.lends_keys().ok_or_else(|| {
            ModelError::Unsupported(
                "an assistant reads the keys and values of a target on the native kernels, and this one runs elsewhere; choose --device cpu, without --backend and --dtype".into(),
            )
        })?;
        check_fit(self.files.tensor_bytes(), memory::available())?;
        let vocab = match &context.options.draft_vocab {
            Some(DraftVocab::All) if self.config.clusters.is_none() => None, // as stored
            wanted => wanted.as_ref().map(|wanted| wanted.tokens(self.config.vocab, context.ends)).transpose()?,
        };
        let plan = self.config.plan();
        let of = (target, context.config.plan());
        let module = NativeAssistant::load(of, (&self.files, &plan), (vocab, AssistantConfig::spec()))?;
        let dtype = module.dtype();
        Ok(core::modules(vec![module], format!("{} (assistant)", self.name), dtype).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assistant_that_does_not_fit_says_its_figures_and_what_helps() {
        check_fit(300_000_000, None).unwrap();
        check_fit(300_000_000, Some(300_000_000)).unwrap();
        let error = check_fit(300_000_000, Some(200_000_000)).unwrap_err().to_string();
        assert!(error.contains("take 300.00 MB, and 200.00 MB of memory are free"), "{error}");
        assert!(!error.contains("--dtype") && !error.contains("positions"), "{error}");
    }
}
