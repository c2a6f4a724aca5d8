//! The small files of a model folder, which can be read before the weights are downloaded.
//!
//! Invariant: nothing here needs a tensor, so a folder can be checked before gigabytes are downloaded. The size of
//! files is limited.

use std::path::{Path, PathBuf};

use crate::ModelError;
use crate::files::foreign::Foreign;
use draftscope_host::file_access;

/// Largest JSON file that is read: tokenizers of large vocabularies take tens of megabytes.
const MAX_JSON: u64 = 256 << 20;

/// What some editors put before UTF-8 text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The small files in a model's folder.
#[derive(Clone, Debug)]
pub struct SideFiles(PathBuf);

impl SideFiles {
    /// The files of this folder.
    #[must_use]
    pub fn of(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// Path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The bytes of a file, without a byte order mark; `None` if it does not exist.
    ///
    /// # Errors
    /// If it exists and cannot be read, or is longer than 256 MiB.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, ModelError> {
        let path = self.0.join(name);
        if !path.is_file() {
            return Ok(None);
        }
        let read_error = |source| ModelError::Read { path: path.clone(), source };
        let bytes = file_access::read_regular(&path, MAX_JSON).map_err(read_error)?;
        let is_json = name.ends_with(".json"); // a mark in a template is a part of it, as in transformers
        Ok(Some(if is_json { file_access::without_mark(&bytes).to_vec() } else { bytes }))
    }

    /// The bytes of a JSON file, without a byte order mark; `None` if it does not exist.
    ///
    /// # Errors
    /// As [`SideFiles::read`]; [`ModelError::Unsupported`] saying what it is if it does not begin like JSON.
    pub fn json(&self, name: &str) -> Result<Option<Vec<u8>>, ModelError> {
        let Some(mut bytes) = self.read(name)? else { return Ok(None) };
        if bytes.starts_with(BYTE_ORDER_MARK) {
            bytes.drain(..BYTE_ORDER_MARK.len());
        }
        let path = self.0.join(name);
        let start = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
        match Foreign::of(&path, &bytes).filter(|_| start != Some(&b'{')) {
            Some(foreign) => Err(foreign.error(&path)),
            None => Ok(Some(bytes)),
        }
    }

    /// The chat template: a file of its own, or a key of `tokenizer_config.json`.
    ///
    /// # Errors
    /// If a file cannot be read or is damaged.
    pub fn chat_template(&self) -> Result<Option<String>, ModelError> {
        if let Some(text) = self.read("chat_template.jinja")? {
            let damaged = |_| ModelError::Template("chat_template.jinja is not UTF-8 text".to_owned());
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
}

/// A single template, or of several named ones the one called `default`, else the first.
fn template_in(value: &serde_json::Value) -> Option<String> {
    if let Some(text) = value.as_str() {
        return Some(text.to_owned());
    }
    let several = value.as_array()?;
    let named = several.iter().find(|one| one["name"] == "default").or(several.first())?;
    named["template"].as_str().map(str::to_owned)
}
