//! The metadata of a GGUF file, key by key.

use candle_core::quantized::gguf_file::Value;

use super::whole_number::whole;
use crate::ModelError;
use crate::files::gguf::GgufFile;

impl GgufFile {
    /// A metadata value.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] if the key is missing.
    pub fn value(&self, key: &str) -> Result<&Value, ModelError> {
        self.metadata.get(key).ok_or_else(|| ModelError::Metadata(format!("the key '{key}' is missing")))
    }

    /// The value of a key, if it is text.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        self.metadata.get(key)?.to_string().ok().map(String::as_str)
    }

    /// The value of a key, if it is a whole number.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<u64> {
        whole(self.metadata.get(key)?)
    }

    /// A whole number, or one for each layer if all are equal; `None` if the key is missing.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] if layers differ, [`ModelError::Metadata`] if the value is something else.
    pub fn uniform(&self, key: &str) -> Result<Option<u64>, ModelError> {
        let Some(value) = self.metadata.get(key) else { return Ok(None) };
        let wrong = || ModelError::Metadata(format!("'{key}' is not a whole number"));
        let Value::Array(values) = value else {
            return whole(value).map(Some).ok_or_else(wrong);
        };
        let numbers = values.iter().map(whole).collect::<Option<Vec<u64>>>().ok_or_else(wrong)?;
        let first = *numbers.first().ok_or_else(wrong)?;
        match numbers.iter().find(|number| **number != first) {
            None => Ok(Some(first)),
            Some(other) => Err(ModelError::Unsupported(format!(
                "'{key}' is {first} in the first layer and {other} in another; layers that differ in it are not supported"
            ))),
        }
    }

    /// A size: a whole number from 1 up to `most`, or one for each layer if all are equal.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] with the key if it is missing or out of range, and those of [`GgufFile::uniform`].
    pub fn size(&self, key: &str, most: usize) -> Result<usize, ModelError> {
        let number = self.uniform(key)?.ok_or_else(|| ModelError::Metadata(format!("the key '{key}' is missing")))?;
        usize::try_from(number)
            .ok()
            .filter(|size| (1..=most).contains(size))
            .ok_or_else(|| ModelError::Metadata(format!("'{key}' is {number}, expected 1 to {most}")))
    }

    /// A positive, finite real number, or `default` if the key is missing.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] with the key if the value is anything else.
    pub fn real(&self, key: &str, default: Option<f32>) -> Result<f32, ModelError> {
        let wrong = |what: &str| ModelError::Metadata(format!("'{key}' {what}"));
        let real = match (self.metadata.get(key), default) {
            (Some(Value::F32(real)), _) => *real,
            (Some(Value::F64(real)), _) => *real as f32,
            (Some(value), _) if whole(value).is_some() => whole(value).unwrap_or_default() as f32,
            (None, Some(default)) => default,
            (None, None) => return Err(wrong("is missing")),
            (Some(_), _) => return Err(wrong("is not a real number")),
        };
        if real.is_finite() && real > 0.0 { Ok(real) } else { Err(wrong("is not positive")) }
    }

    /// A list value.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] if it is missing or not a list.
    pub fn list(&self, key: &str) -> Result<&[Value], ModelError> {
        match self.value(key)? {
            Value::Array(values) => Ok(values),
            _ => Err(ModelError::Metadata(format!("'{key}' is not a list"))),
        }
    }
}
