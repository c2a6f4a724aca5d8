//! Reading GGUF files: typed metadata and tensors, through candle's bounds-checked reader.
//!
//! Invariant: whatever the bytes are, the answer is a value or a [`ModelError`] that names the key
//! or tensor. What the numbers mean is the architecture's business.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use candle_core::Device;
use candle_core::quantized::gguf_file::{Content, TensorInfo, Value};
use candle_core::quantized::{GgmlDType, QTensor};

use super::ModelError;

/// An open GGUF file with its table of contents.
pub struct GgufFile {
    path: PathBuf,
    content: Content,
    file: Mutex<BufReader<File>>,
    size: u64,
}

impl GgufFile {
    /// Opens a file and reads its metadata; tensors stay on disk.
    ///
    /// # Errors
    /// [`ModelError::Read`] when it cannot be opened, [`ModelError::Corrupt`] when it is no whole GGUF.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let read_error = |source| ModelError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(read_error)?;
        let size = file.metadata().map_err(read_error)?.len();
        let mut file = BufReader::new(file);
        let content = Content::read(&mut file).map_err(|error| corrupt(path, &error))?;
        let gguf = Self { path: path.to_owned(), content, file: Mutex::new(file), size };
        gguf.check_extent()?;
        Ok(gguf)
    }

    /// A file that was cut short still has a good table of contents: compare it with the length.
    fn check_extent(&self) -> Result<(), ModelError> {
        for (name, info) in &self.content.tensor_infos {
            let end = tensor_bytes(info)
                .and_then(|bytes| bytes.checked_add(info.offset))
                .and_then(|end| end.checked_add(self.content.tensor_data_offset));
            if end.is_none_or(|end| end > self.size) {
                return Err(ModelError::Corrupt {
                    path: self.path.clone(),
                    what: format!("tensor '{name}' reaches beyond the end of the file ({} bytes)", self.size),
                });
            }
        }
        Ok(())
    }

    /// Where the file lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names of all tensors.
    pub fn tensor_names(&self) -> impl Iterator<Item = &str> {
        self.content.tensor_infos.keys().map(String::as_str)
    }

    /// Whether there is a tensor of this name.
    #[must_use]
    pub fn has_tensor(&self, name: &str) -> bool {
        self.content.tensor_infos.contains_key(name)
    }

    /// How a tensor is stored.
    #[must_use]
    pub fn tensor_dtype(&self, name: &str) -> Option<GgmlDType> {
        self.content.tensor_infos.get(name).map(|info| info.ggml_dtype)
    }

    /// Bytes of all tensors in the file.
    #[must_use]
    pub fn tensor_bytes(&self) -> u64 {
        self.content.tensor_infos.values().filter_map(tensor_bytes).sum()
    }

    /// Reads a tensor, checking its shape (outermost dimension first).
    ///
    /// # Errors
    /// [`ModelError::MissingTensor`], [`ModelError::Shape`], or a damaged file.
    pub fn tensor(&self, name: &str, shape: &[usize], device: &Device) -> Result<QTensor, ModelError> {
        let info = self.content.tensor_infos.get(name).ok_or_else(|| ModelError::MissingTensor(name.to_owned()))?;
        if info.shape.dims() != shape {
            return Err(ModelError::Shape {
                name: name.to_owned(),
                got: info.shape.dims().to_vec(),
                expected: shape.to_vec(),
            });
        }
        let mut file = self.file.lock().map_err(|_| ModelError::Metadata("the file reader is poisoned".into()))?;
        info.read(&mut *file, self.content.tensor_data_offset, device).map_err(|error| corrupt(&self.path, &error))
    }

    /// Shape of a tensor, outermost dimension first.
    ///
    /// # Errors
    /// [`ModelError::MissingTensor`].
    pub fn shape(&self, name: &str) -> Result<&[usize], ModelError> {
        let info = self.content.tensor_infos.get(name);
        info.map(|info| info.shape.dims()).ok_or_else(|| ModelError::MissingTensor(name.to_owned()))
    }

    /// A tensor's bytes as the file stores them.
    ///
    /// # Errors
    /// [`ModelError::MissingTensor`], or a file that cannot be read.
    pub fn raw_tensor(&self, name: &str) -> Result<Vec<u8>, ModelError> {
        let info = self.content.tensor_infos.get(name).ok_or_else(|| ModelError::MissingTensor(name.to_owned()))?;
        // the extent was checked when the file was opened
        let len = tensor_bytes(info).and_then(|len| usize::try_from(len).ok()).unwrap_or(0);
        let start = self.content.tensor_data_offset.saturating_add(info.offset);
        let mut bytes = vec![0; len];
        let mut file = self.file.lock().map_err(|_| ModelError::Metadata("the file reader is poisoned".into()))?;
        let outcome = file.seek(SeekFrom::Start(start)).and_then(|_| file.read_exact(&mut bytes));
        outcome.map_err(|source| ModelError::Read { path: self.path.clone(), source })?;
        Ok(bytes)
    }

    /// A metadata value.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] when the key is not there.
    pub fn value(&self, key: &str) -> Result<&Value, ModelError> {
        self.content.metadata.get(key).ok_or_else(|| ModelError::Metadata(format!("the key '{key}' is missing")))
    }

    /// A text value, if there is one under this key.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        self.content.metadata.get(key)?.to_string().ok().map(String::as_str)
    }

    /// A whole number, if there is one under this key.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<u64> {
        let value = self.content.metadata.get(key)?;
        value.to_u64().ok().or_else(|| value.to_i32().ok().and_then(|v| u64::try_from(v).ok()))
    }

    /// A size: a whole number from 1 up to `most`.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] naming the key when it is missing or out of range.
    pub fn size(&self, key: &str, most: usize) -> Result<usize, ModelError> {
        let number = self.number(key).ok_or_else(|| ModelError::Metadata(format!("the key '{key}' is missing")))?;
        usize::try_from(number)
            .ok()
            .filter(|size| (1..=most).contains(size))
            .ok_or_else(|| ModelError::Metadata(format!("'{key}' is {number}, expected 1 to {most}")))
    }

    /// A positive, finite real number, or `default` when the key is missing.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] naming the key when the value is something else.
    pub fn real(&self, key: &str, default: Option<f32>) -> Result<f32, ModelError> {
        let wrong = |what: &str| ModelError::Metadata(format!("'{key}' {what}"));
        let real = match (self.content.metadata.get(key), default) {
            (Some(Value::F32(real)), _) => *real,
            (Some(Value::F64(real)), _) => *real as f32,
            (None, Some(default)) => default,
            (None, None) => return Err(wrong("is missing")),
            (Some(_), _) => return Err(wrong("is no real number")),
        };
        if real.is_finite() && real > 0.0 { Ok(real) } else { Err(wrong("is not positive")) }
    }

    /// A list value.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] when it is missing or no list.
    pub fn list(&self, key: &str) -> Result<&[Value], ModelError> {
        match self.value(key)? {
            Value::Array(values) => Ok(values),
            _ => Err(ModelError::Metadata(format!("'{key}' is no list"))),
        }
    }
}

fn tensor_bytes(info: &TensorInfo) -> Option<u64> {
    let elements =
        info.shape.dims().iter().try_fold(1u64, |product, dim| product.checked_mul(u64::try_from(*dim).ok()?))?;
    let block = info.ggml_dtype.block_size() as u64;
    elements.is_multiple_of(block).then_some(())?;
    (elements / block).checked_mul(info.ggml_dtype.type_size() as u64)
}

fn corrupt(path: &Path, error: &candle_core::Error) -> ModelError {
    let text = error.to_string();
    let what = text.lines().next().unwrap_or("unreadable").to_owned();
    let what = match what {
        what if what.contains("fill whole buffer") => "it ends in the middle".to_owned(),
        what if what.contains("unknown magic") => "it does not begin as a GGUF file does".to_owned(),
        what => what,
    };
    ModelError::Corrupt { path: path.to_owned(), what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_no_gguf_are_refused_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in
            [("empty", &b""[..]), ("text", b"hello world, I am no model"), ("cut", b"GGUF\x03\0\0\0\xff")]
        {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            let error = GgufFile::open(&path).err().unwrap().to_string();
            assert!(error.contains("damaged or incomplete") && error.lines().count() == 1, "{error}");
        }
        let missing = GgufFile::open(&folder.path().join("none")).err().unwrap().to_string();
        assert!(missing.starts_with("cannot read"), "{missing}");
    }
}
