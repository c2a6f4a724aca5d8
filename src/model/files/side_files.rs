//! The small files of a model folder: what can be read before the weights are there.
//!
//! Invariant: nothing here needs a tensor, so a folder can be judged before gigabytes are fetched. Files are
//! bounded in size.

use std::path::{Path, PathBuf};

use crate::model::ModelError;
use crate::model::drafters::eagle3::EagleConfig;
use crate::model::families::gemma4::assistant::AssistantConfig;
use crate::model::families::llama::config_json::HfConfig;
use crate::model::memory;
use crate::model::text::tokenizer::TextCodec;

/// Largest JSON file that is read: tokenizers of large vocabularies take tens of megabytes.
const MAX_JSON: u64 = 256 << 20;

/// The files beside a folder's weights.
#[derive(Clone, Debug)]
pub struct SideFiles(PathBuf);

impl SideFiles {
    /// Those of this folder.
    #[must_use]
    pub fn of(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// Where the folder lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A file, when there is one.
    ///
    /// # Errors
    /// When it is there and cannot be read, or is beyond all bounds.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, ModelError> {
        let path = self.0.join(name);
        if !path.is_file() {
            return Ok(None);
        }
        let read_error = |source| ModelError::Read { path: path.clone(), source };
        let size = std::fs::metadata(&path).map_err(read_error)?.len();
        if size > MAX_JSON {
            return Err(ModelError::Corrupt { path, what: format!("it is {size} bytes long") });
        }
        std::fs::read(&path).map(Some).map_err(read_error)
    }

    /// `config.json`.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub fn config(&self) -> Result<Vec<u8>, ModelError> {
        self.read("config.json")?.ok_or_else(|| {
            ModelError::Unsupported(format!(
                "{} holds no config.json; a model folder has one beside its safetensors, and a GGUF file is named itself",
                self.0.display()
            ))
        })
    }

    /// The chat template: a file of its own, or a key of `tokenizer_config.json`.
    ///
    /// # Errors
    /// When a file cannot be read or is damaged.
    pub fn chat_template(&self) -> Result<Option<String>, ModelError> {
        if let Some(text) = self.read("chat_template.jinja")? {
            let damaged = |_| ModelError::Template("chat_template.jinja is no UTF-8 text".to_owned());
            return String::from_utf8(text).map(Some).map_err(damaged);
        }
        for name in ["tokenizer_config.json", "chat_template.json"] {
            let Some(text) = self.read(name)? else { continue };
            let value: serde_json::Value =
                serde_json::from_slice(&text).map_err(|error| ModelError::Template(format!("{name}: {error}")))?;
            if let Some(template) = template_in(&value["chat_template"]) {
                return Ok(Some(template));
            }
        }
        Ok(None)
    }

    /// Whether a model of this kind runs, told from its configuration and tokenizer alone. Experts make models large:
    /// one whose weights exceed all memory is told with its figures before anything large is fetched.
    ///
    /// # Errors
    /// What is not supported, or damaged, or does not fit.
    pub fn preflight(&self) -> Result<(), ModelError> {
        self.preflight_within(fit::installed().filter(|_| !cfg!(any(feature = "cuda", feature = "metal"))))
    }

    /// The same on a machine with so many bytes of memory; none = unknown.
    ///
    /// # Errors
    /// As [`SideFiles::preflight`].
    pub fn preflight_within(&self, memory: Option<u64>) -> Result<(), ModelError> {
        let config = self.config()?;
        if EagleConfig::is_one(&config) {
            return EagleConfig::from_json(&config).map(drop);
        }
        if AssistantConfig::is_one(&config) {
            return AssistantConfig::from_json(&config).map(drop);
        }
        let config = HfConfig::from_json(&config)?.llama(true)?;
        if config.latent.is_some() {
            // the least that weights can be held in: FP8 is widened
            fit::check_weights(2 * config.matrix_weights(), "bf16", memory)?;
        }
        TextCodec::from_folder(self).map(drop)
    }
}

/// One template, or the default one of several with names.
fn template_in(value: &serde_json::Value) -> Option<String> {
    if let Some(text) = value.as_str() {
        return Some(text.to_owned());
    }
    let several = value.as_array()?;
    let named = several.iter().find(|one| one["name"] == "default").or(several.first())?;
    named["template"].as_str().map(str::to_owned)
}
