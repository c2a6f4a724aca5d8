//! What the native loader asks of a GGUF file: numbers, and tensors as raw blocks with their encoding.
//!
//! The file itself is the shared reader's; here is checked what would make packing go wrong (shapes,
//! encodings, whole blocks). Meaning is left to the model.

use candle_core::quantized::{GgmlDType, gguf_file};

use super::kernel::Encoding;
use crate::model::{ModelError, gguf::GgufFile};

/// A file as this backend sees it.
#[derive(Clone, Copy)]
pub(super) struct GgufSource<'a>(pub(super) &'a GgufFile);

/// A tensor as stored, `[rows, k]`.
#[derive(Debug)]
pub(super) struct RawTensor {
    pub(super) encoding: Encoding,
    pub(super) bytes: Vec<u8>,
}

impl GgufSource<'_> {
    pub(super) fn file_name(&self) -> String {
        self.0.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    fn value(&self, key: &str) -> Option<&gguf_file::Value> {
        self.0.value(key).ok()
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.0.text(key)
    }

    /// A whole number; none when absent.
    pub(super) fn maybe_count(&self, key: &str) -> Result<Option<usize>, ModelError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let count = value.to_u64().ok().and_then(|count| usize::try_from(count).ok());
        count.map(Some).ok_or_else(|| ModelError::Metadata(format!("{key} is no whole number")))
    }

    pub(super) fn count(&self, key: &str) -> Result<usize, ModelError> {
        let count = self.maybe_count(key)?;
        count.ok_or_else(|| ModelError::Metadata(format!("{key} is missing")))
    }

    pub(super) fn number(&self, key: &str, default: f32) -> Result<f32, ModelError> {
        let number = self.value(key).map(gguf_file::Value::to_f32).transpose();
        number.map(|number| number.unwrap_or(default)).map_err(|_| ModelError::Metadata(format!("{key} is no number")))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.has_tensor(name)
    }

    /// Shape as `[rows, columns…]`.
    pub(super) fn shape(&self, name: &str) -> Result<&[usize], ModelError> {
        self.0.shape(name)
    }

    /// Blocks of a matrix of the expected shape.
    pub(super) fn matrix(&self, name: &str, rows: usize, k: usize) -> Result<RawTensor, ModelError> {
        self.expect_shape(name, &[rows, k])?;
        let encoding = self.encoding(name)?;
        let row_bytes = encoding.row_bytes(k).ok_or_else(|| self.corrupt(name, "rows of broken blocks"))?;
        let bytes = self.read(name, rows.checked_mul(row_bytes))?;
        Ok(RawTensor { encoding, bytes })
    }

    /// A vector of plain numbers.
    pub(super) fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, ModelError> {
        self.expect_shape(name, &[len])?;
        if self.encoding(name)? != Encoding::F32 {
            return Err(ModelError::Unsupported(format!("tensor '{name}' is not stored as f32")));
        }
        let bytes = self.read(name, len.checked_mul(4))?;
        Ok(bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    fn expect_shape(&self, name: &str, expected: &[usize]) -> Result<(), ModelError> {
        let got = self.shape(name)?;
        if got == expected {
            return Ok(());
        }
        Err(ModelError::Shape { name: name.to_owned(), got: got.to_vec(), expected: expected.to_vec() })
    }

    fn encoding(&self, name: &str) -> Result<Encoding, ModelError> {
        let dtype = self.0.tensor_dtype(name).ok_or_else(|| ModelError::MissingTensor(name.to_owned()))?;
        Ok(match dtype {
            GgmlDType::F32 => Encoding::F32,
            GgmlDType::F16 => Encoding::F16,
            GgmlDType::BF16 => Encoding::Bf16,
            GgmlDType::Q4_0 => Encoding::Q4_0,
            GgmlDType::Q4_1 => Encoding::Q4_1,
            GgmlDType::Q5_0 => Encoding::Q5_0,
            GgmlDType::Q5_1 => Encoding::Q5_1,
            GgmlDType::Q8_0 => Encoding::Q8_0,
            GgmlDType::Q4K => Encoding::Q4K,
            GgmlDType::Q5K => Encoding::Q5K,
            GgmlDType::Q6K => Encoding::Q6K,
            other => {
                let what = format!("the native backend does not run {other:?} weights (tensor '{name}'); use candle");
                return Err(ModelError::Unsupported(what));
            }
        })
    }

    /// Bytes of a tensor, which must be as many as its encoding asks for.
    fn read(&self, name: &str, len: Option<usize>) -> Result<Vec<u8>, ModelError> {
        let bytes = self.0.raw_tensor(name)?;
        if Some(bytes.len()) == len { Ok(bytes) } else { Err(self.corrupt(name, "impossible size")) }
    }

    fn corrupt(&self, name: &str, what: &str) -> ModelError {
        ModelError::Corrupt { path: self.0.path().to_owned(), what: format!("tensor '{name}': {what}") }
    }
}
