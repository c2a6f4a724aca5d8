//! `config.json` as JSON: the family that it names, and how its tensors are stored.
//!
//! Files of models with other towers nest the keys of the one that writes under `text_config`; those keys count. What
//! they mean is the families' business.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::model::ModelError;
use crate::model::error::clean;

/// A parsed `config.json`.
#[derive(Clone, Debug)]
pub struct ConfigJson {
    model_type: String,
    /// Those of `text_config` where there is one.
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
    /// [`ModelError::Metadata`] when it is no JSON object with a `model_type`.
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
        // these two stand outside in nested files
        for key in ["tie_word_embeddings", "quantization_config"] {
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

    /// `text_config.model_type`; none where nothing is nested.
    #[must_use]
    pub fn nested_model_type(&self) -> Option<&Value> {
        self.nested.then(|| self.keys.get("model_type").unwrap_or(&Value::Null))
    }

    /// The keys.
    #[must_use]
    pub fn keys(&self) -> &Map<String, Value> {
        &self.keys
    }

    /// The same file with these values for keys that are missing or null.
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

    /// The keys as a type.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] naming the key that is missing or of another type.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, ModelError> {
        serde_json::from_value(Value::Object(self.keys.clone())).map_err(|error| wrong(&error))
    }

    /// Transformer blocks; 0 where the key is missing.
    #[must_use]
    pub fn layers(&self) -> usize {
        self.number("num_hidden_layers")
    }

    /// Draft modules that the files are said to hold.
    #[must_use]
    pub fn announced_modules(&self) -> usize {
        self.number("num_nextn_predict_layers")
    }

    fn number(&self, key: &str) -> usize {
        self.keys.get(key).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok()).unwrap_or(0)
    }

    /// Whether the embedding is the output head; none when the key is missing: then the tensors decide.
    #[must_use]
    pub fn tied(&self) -> Option<bool> {
        self.keys.get("tie_word_embeddings").and_then(Value::as_bool)
    }

    /// Rows and columns that share a scale, where weights are FP8.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] for every compression but FP8 in blocks.
    pub fn fp8_block(&self) -> Result<Option<[usize; 2]>, ModelError> {
        let Some(value) = self.keys.get("quantization_config").filter(|value| !value.is_null()) else {
            return Ok(None);
        };
        let quantization: Quantization = serde_json::from_value(value.clone()).map_err(|error| wrong(&error))?;
        quantization.fp8_block().map(Some)
    }
}

/// `quantization_config`.
#[derive(Clone, Debug, Deserialize)]
pub struct Quantization {
    quant_method: Option<String>,
    weight_block_size: Option<[usize; 2]>,
}

impl Quantization {
    /// Rows and columns that share a scale.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] for every compression but FP8 in blocks.
    pub fn fp8_block(&self) -> Result<[usize; 2], ModelError> {
        let method = self.quant_method.as_deref().unwrap_or("(none)");
        match (method, self.weight_block_size) {
            ("fp8", Some(block)) if block.iter().all(|size| (1..=1 << 20).contains(size)) => Ok(block),
            ("fp8", _) => Err(ModelError::Unsupported(
                "'quantization_config' is fp8 without a 'weight_block_size'; only block-scaled FP8 is supported".into(),
            )),
            (other, _) => Err(ModelError::Unsupported(format!(
                "'quantization_config.quant_method' is '{}', which is not supported; use the unquantised checkpoint, an FP8 one or a GGUF file",
                clean(other)
            ))),
        }
    }
}

/// A size.
///
/// # Errors
/// [`ModelError::Metadata`] when it is 0 or larger than any model has it.
pub(in crate::model) fn size(key: &str, size: usize, most: usize) -> Result<usize, ModelError> {
    if (1..=most).contains(&size) {
        return Ok(size);
    }
    Err(ModelError::Metadata(format!("'{key}' is {size}, expected 1 to {most}")))
}

/// A positive number.
///
/// # Errors
/// [`ModelError::Metadata`] when it is not a positive number.
pub(in crate::model) fn positive(key: &str, value: f64) -> Result<f64, ModelError> {
    if value.is_finite() && value > 0.0 {
        return Ok(value);
    }
    Err(ModelError::Metadata(format!("'{key}' is {value}, expected a positive number")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn compressions_other_than_fp8_in_blocks_are_rejected_by_name() {
        let block = |json: Value| serde_json::from_value::<Quantization>(json).unwrap().fp8_block();
        assert_eq!(block(json!({"quant_method": "fp8", "weight_block_size": [128, 128]})).unwrap(), [128, 128]);
        for (config, says) in [
            (json!({"quant_method": "awq"}), "'awq'"),
            (json!({"quant_method": "fp8"}), "weight_block_size"),
            (json!({"quant_method": "fp8", "weight_block_size": [0, 128]}), "weight_block_size"),
        ] {
            assert!(block(config).unwrap_err().to_string().contains(says));
        }
    }
}
