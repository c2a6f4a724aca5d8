//! `config.json` as JSON: the family that it names, and how its tensors are stored.
//!
//! Models with further towers (images, sound) nest the keys of the text model under `text_config`; those keys count.
//! The families interpret them.

use std::fmt::Display;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::ModelError;
use crate::error::clean;
use crate::files::quantisation;

/// A parsed `config.json`.
#[derive(Clone, Debug)]
pub struct ConfigJson {
    model_type: String,
    /// The keys of `text_config` if it exists, else the outer ones.
    keys: Map<String, Value>,
    nested: bool,
}

/// An error in `config.json`.
fn wrong(error: &serde_json::Error) -> ModelError {
    ModelError::Metadata(format!("config.json: {}", clean(&error.to_string())))
}

impl ConfigJson {
    /// Parses the text.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] if it is not a JSON object with a `model_type`.
    pub fn parse(json: &[u8]) -> Result<Self, ModelError> {
        #[derive(Deserialize)]
        struct Kind {
            model_type: String,
        }
        let Kind { model_type } = serde_json::from_slice(json).map_err(|error| wrong(&error))?;
        let mut outer: Map<String, Value> = serde_json::from_slice(json).map_err(|error| wrong(&error))?;
        let inner = match outer.remove("text_config") {
            Some(Value::Object(inner)) => Some(inner),
            _ => None,
        };
        let nested = inner.is_some();
        let mut keys = inner.unwrap_or_else(|| outer.clone());
        // nested files have these keys outside `text_config`
        for key in ["tie_word_embeddings", "quantization_config", "quantization"] {
            if let Some(value) = outer.get(key)
                && keys.get(key).is_none_or(Value::is_null)
            {
                keys.insert(key.to_owned(), value.clone());
            }
        }
        Ok(Self { model_type, keys, nested })
    }

    /// The outermost `model_type`.
    #[must_use]
    pub fn model_type(&self) -> &str {
        &self.model_type
    }

    /// `text_config.model_type`; `None` without a `text_config`.
    #[must_use]
    pub fn nested_model_type(&self) -> Option<&Value> {
        self.nested.then(|| self.keys.get("model_type").unwrap_or(&Value::Null))
    }

    /// The keys that count.
    #[must_use]
    pub fn keys(&self) -> &Map<String, Value> {
        &self.keys
    }

    /// The same file, with these values for keys that are missing or null.
    #[must_use]
    pub fn with_defaults(mut self, defaults: &[(&str, Value)]) -> Self {
        for (key, value) in defaults {
            let slot = self.keys.entry(*key).or_insert(Value::Null);
            if slot.is_null() {
                slot.clone_from(value);
            }
        }
        self
    }

    /// The same file with another value for a key.
    #[must_use]
    pub fn with(mut self, key: &str, value: Value) -> Self {
        self.keys.insert(key.to_owned(), value);
        self
    }

    /// The keys, deserialised into a type.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] with the key that is missing or of another type.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, ModelError> {
        serde_json::from_value(Value::Object(self.keys.clone())).map_err(|error| wrong(&error))
    }

    /// Number of transformer blocks; 0 if the key is missing.
    #[must_use]
    pub fn layers(&self) -> usize {
        self.number("num_hidden_layers")
    }

    /// Number of draft modules that the files should contain.
    #[must_use]
    pub fn announced_modules(&self) -> usize {
        self.number("num_nextn_predict_layers")
    }

    fn number(&self, key: &str) -> usize {
        self.keys.get(key).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok()).unwrap_or(0)
    }

    /// Whether the embedding is the output head; `None` if the key is missing, so that the tensors decide.
    #[must_use]
    pub fn tied(&self) -> Option<bool> {
        self.keys.get("tie_word_embeddings").and_then(Value::as_bool)
    }

    /// Rows and columns that share a scale, if weights are FP8.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] for any quantisation except block-scaled FP8.
    pub fn fp8_block(&self) -> Result<Option<[usize; 2]>, ModelError> {
        quantisation::fp8_block(&self.keys)
    }
}

/// An error for keys that contradict each other, or an impossible value.
pub(crate) fn contradiction<T>(what: impl Into<String>) -> Result<T, ModelError> {
    Err(ModelError::Metadata(what.into()))
}

/// An error for a key that asks for something not computed.
pub(crate) fn refused<T>(what: impl Display) -> Result<T, ModelError> {
    Err(ModelError::Unsupported(format!("{what}, which is not supported")))
}

/// A required key.
///
/// # Errors
/// [`ModelError::Metadata`] naming it when it is missing.
pub(crate) fn given<T>(key: &str, value: Option<T>) -> Result<T, ModelError> {
    value.ok_or_else(|| ModelError::Metadata(format!("config.json lacks '{key}'")))
}

/// Keys that only one family has: an unknown one would change what its layers compute.
pub(crate) struct OwnKeys {
    /// Prefixes of such keys.
    pub(crate) starts: &'static [&'static str],
    /// Those that are read, or change nothing.
    pub(crate) known: &'static [&'static str],
    /// Whether a value asks for something; if not, its key is ignored.
    pub(crate) asks: fn(&Value) -> bool,
}

impl OwnKeys {
    /// Reads them.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] naming the first unknown one, [`ModelError::Metadata`] naming one that is missing or
    /// of another type.
    pub(crate) fn read<T: DeserializeOwned>(&self, object: &Map<String, Value>) -> Result<T, ModelError> {
        let is_own = |key: &str| self.starts.iter().any(|start| key.starts_with(start)) && !self.known.contains(&key);
        if let Some((key, _)) = object.iter().find(|(key, value)| is_own(key) && (self.asks)(value)) {
            return refused(format!(
                "config.json: '{}' is not known here and may change what the layers compute",
                clean(key)
            ));
        }
        serde_json::from_value(Value::Object(object.clone())).map_err(|error| wrong(&error))
    }
}

/// The kind of each layer, from the list under `key`.
///
/// # Errors
/// [`ModelError::Metadata`] if it has another length, [`ModelError::Unsupported`] for a name that `kind` does not know.
pub(crate) fn layer_kinds<K>(
    key: &str,
    (types, layers): (&[String], usize),
    kind: impl Fn(&str) -> Option<K>,
) -> Result<Vec<K>, ModelError> {
    if types.len() != layers {
        return contradiction(format!("'{key}' names {} layers and 'num_hidden_layers' is {layers}", types.len()));
    }
    let holds = |name: &String| kind(name).map_or_else(|| refused(format!("'{key}' holds '{}'", clean(name))), Ok);
    types.iter().map(holds).collect()
}

/// A share of a head: more than 0, at most 1.
///
/// # Errors
/// [`ModelError::Metadata`] otherwise.
pub(crate) fn share(key: &str, value: f64) -> Result<f64, ModelError> {
    if value > 0.0 && value <= 1.0 {
        return Ok(value);
    }
    contradiction(format!("'{key}' is {value}, expected more than 0 and at most 1"))
}

/// A size.
///
/// # Errors
/// [`ModelError::Metadata`] unless it is in 1 to `most`.
pub(crate) fn size(key: &str, size: usize, most: usize) -> Result<usize, ModelError> {
    if (1..=most).contains(&size) {
        return Ok(size);
    }
    contradiction(format!("'{key}' is {size}, expected 1 to {most}"))
}

/// Checks a positive number.
///
/// # Errors
/// [`ModelError::Metadata`] unless it is finite and positive.
pub(crate) fn positive(key: &str, value: f64) -> Result<f64, ModelError> {
    if value.is_finite() && value > 0.0 {
        return Ok(value);
    }
    contradiction(format!("'{key}' is {value}, expected a positive number"))
}
