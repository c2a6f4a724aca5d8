//! The tiny checkpoints under `tests/fixtures/checkpoints`, with reference values of independent programs.

use std::path::{Path, PathBuf};

use draftscope::model::load::{Loaded, load};
use draftscope::model::options::{Backend, DeviceChoice, Dtype, LoadOptions};
use draftscope::protocol::TokenId;
use safetensors::SafeTensors;
use serde_json::Value;

/// A fixture by its name: a folder, or a GGUF file.
pub fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/checkpoints").join(name)
}

/// Reference values.
pub struct Golden {
    bytes: Vec<u8>,
    pub json: Value,
}

impl Golden {
    pub fn of(name: &str) -> Self {
        let json = serde_json::from_slice(&std::fs::read(Self::file(name, "json")).unwrap()).unwrap();
        Self { json, ..Self::bare(name) }
    }

    /// In a folder, or beside a GGUF file.
    fn file(name: &str, end: &str) -> PathBuf {
        match path(name).is_dir() {
            true => path(name).join(format!("golden.{end}")),
            false => path(&format!("{name}.golden.{end}")),
        }
    }

    /// Only tensors without JSON, for draft heads.
    pub fn bare(name: &str) -> Self {
        Self { bytes: std::fs::read(Self::file(name, "safetensors")).unwrap(), json: Value::Null }
    }

    /// `[rows, width]` of plain numbers.
    pub fn numbers(&self, name: &str) -> Vec<f32> {
        self.find(name).unwrap_or_else(|| panic!("no reference values '{name}'"))
    }

    pub fn find(&self, name: &str) -> Option<Vec<f32>> {
        let tensors = SafeTensors::deserialize(&self.bytes).unwrap();
        let numbers = tensors.tensor(name).ok()?.data().as_chunks().0;
        Some(numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    pub fn tokens(&self, name: &str) -> Vec<TokenId> {
        let tensors = SafeTensors::deserialize(&self.bytes).unwrap();
        let ids = tensors.tensor(name).unwrap();
        ids.data().as_chunks().0.iter().map(|bytes| TokenId(i64::from_le_bytes(*bytes) as u32)).collect()
    }
}

pub fn recipe(path: PathBuf, backend: Backend) -> LoadOptions {
    LoadOptions {
        target: path,
        sha256: None,
        dtype: if backend == Backend::Candle { Dtype::F32 } else { Dtype::Stored },
        device: DeviceChoice::Cpu,
        adapter: None,
        device_memory: None,
        backend,
        threads: Some(2),
        ctx_len: None,
        mtp: None,
        draft_model: None,
        draft_model_required: false,
        vocab_method: None,
        divides_by_q: false,
        rollback: None,
        draft_vocab: None,
        think: None,
        special_tokens: false,
        pass_form: None,
    }
}

pub fn open(name: &str, backend: Backend) -> Loaded {
    load(&recipe(path(name), backend), &mut |_, _, _| {}).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A copy of a fixture folder that a test may change.
pub fn copy(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(path(name)).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    folder
}

/// Changes a JSON file of a copy.
pub fn edit(folder: &Path, file: &str, change: impl FnOnce(&mut Value)) {
    let path = folder.join(file);
    let mut value: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut value);
    std::fs::write(path, value.to_string()).unwrap();
}
