//! A thin reader of GGUF files: metadata values, and tensors as raw blocks.
//!
//! It checks what would make packing go wrong (shapes, lengths, encodings) and leaves meaning to the
//! model. To be replaced by the reader that all backends share.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use candle_core::quantized::{GgmlDType, gguf_file};

use super::kernel::Encoding;
use crate::model::ModelError;

/// An open file.
#[derive(Debug)]
pub(super) struct GgufSource {
    path: PathBuf,
    file: File,
    len: u64,
    content: gguf_file::Content,
}

/// A tensor as stored, `[rows, k]`.
#[derive(Debug)]
pub(super) struct RawTensor {
    pub(super) encoding: Encoding,
    pub(super) bytes: Vec<u8>,
}

impl GgufSource {
    pub(super) fn open(path: &Path) -> Result<Self, ModelError> {
        let read = |source| ModelError::Read { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(read)?;
        let len = file.metadata().map_err(read)?.len();
        let content = gguf_file::Content::read(&mut file)
            .map_err(|error| ModelError::Corrupt { path: path.to_owned(), what: error.to_string() })?;
        Ok(Self { path: path.to_owned(), file, len, content })
    }

    pub(super) fn file_name(&self) -> String {
        self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    fn value(&self, key: &str) -> Option<&gguf_file::Value> {
        self.content.metadata.get(key)
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.value(key)?.to_string().ok().map(String::as_str)
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
        self.content.tensor_infos.contains_key(name)
    }

    /// Shape as `[rows, columns…]`.
    pub(super) fn shape(&self, name: &str) -> Result<&[usize], ModelError> {
        let info = self.content.tensor_infos.get(name);
        info.map(|info| info.shape.dims()).ok_or_else(|| ModelError::MissingTensor(name.to_owned()))
    }

    /// Blocks of a matrix of the expected shape.
    pub(super) fn matrix(&mut self, name: &str, rows: usize, k: usize) -> Result<RawTensor, ModelError> {
        self.expect_shape(name, &[rows, k])?;
        let encoding = self.encoding(name)?;
        let row_bytes = encoding.row_bytes(k).ok_or_else(|| self.corrupt(name, "rows of broken blocks"))?;
        let bytes = self.read(name, rows.checked_mul(row_bytes))?;
        Ok(RawTensor { encoding, bytes })
    }

    /// A vector of plain numbers.
    pub(super) fn vector(&mut self, name: &str, len: usize) -> Result<Vec<f32>, ModelError> {
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
        let info = self.content.tensor_infos.get(name);
        let dtype = info.ok_or_else(|| ModelError::MissingTensor(name.to_owned()))?.ggml_dtype;
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

    /// Bytes of a tensor, once they are known to be in the file.
    fn read(&mut self, name: &str, len: Option<usize>) -> Result<Vec<u8>, ModelError> {
        let offset = self.content.tensor_infos.get(name).map_or(0, |info| info.offset);
        let start = self.content.tensor_data_offset.checked_add(offset);
        let end = start.zip(len).and_then(|(start, len)| start.checked_add(len as u64));
        let (Some(start), Some(len)) = (start, len) else {
            return Err(self.corrupt(name, "impossible size"));
        };
        if end.is_none_or(|end| end > self.len) {
            return Err(self.corrupt(name, "ends beyond the file"));
        }
        let mut bytes = vec![0; len];
        let outcome = self.file.seek(SeekFrom::Start(start)).and_then(|_| self.file.read_exact(&mut bytes));
        outcome.map_err(|source| ModelError::Read { path: self.path.clone(), source })?;
        Ok(bytes)
    }

    fn corrupt(&self, name: &str, what: &str) -> ModelError {
        ModelError::Corrupt { path: self.path.clone(), what: format!("tensor '{name}': {what}") }
    }
}
