//! A model on disk: a GGUF file or a folder of safetensors.
//!
//! Callers name tensors as GGUF does (`blk.3.attn_q.weight`); a folder translates the names.
//! Invariant: a returned tensor has the requested shape and as many bytes as its type needs, so callers
//! need no further checks. Its bytes are those of the mapped file, except for FP8, which is widened.

use std::path::Path;

use draftscope_kernels::Encoding;

use crate::ModelError;
use crate::files::folder::Folder;
use crate::files::gguf::GgufFile;
use crate::files::loaded::LoadedTensor;
use crate::files::stored::Stored;
use draftscope_protocol::TokenId;

/// A model on disk.
pub enum ModelFiles {
    /// One GGUF file.
    Gguf(GgufFile),
    /// A folder with `config.json` and safetensors.
    Folder(Box<Folder>),
}

impl ModelFiles {
    /// Whether there is a tensor of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        match self {
            Self::Gguf(gguf) => gguf.has_tensor(name),
            Self::Folder(folder) => folder.has(name),
        }
    }

    /// Whether it is a folder as its makers trained it, not a converted file.
    #[must_use]
    pub fn is_checkpoint(&self) -> bool {
        matches!(self, Self::Folder(_))
    }

    /// A tensor as stored, of the given shape, outermost dimension first.
    ///
    /// # Errors
    /// [`ModelError::MissingTensor`], [`ModelError::Shape`], or a type that is not supported.
    pub fn stored(&self, name: &str, shape: &[usize]) -> Result<Stored<'_>, ModelError> {
        match self {
            Self::Gguf(gguf) => gguf.stored(name, shape),
            Self::Folder(folder) => folder.stored(name, shape),
        }
    }

    /// Checks a tensor of the given shape without reading it; returns the encoding that it is loaded in.
    ///
    /// # Errors
    /// As [`ModelFiles::stored`].
    pub(crate) fn check(&self, name: &str, shape: &[usize]) -> Result<Encoding, ModelError> {
        match self {
            Self::Gguf(gguf) => gguf.check(name, shape),
            Self::Folder(folder) => folder.check(name, shape),
        }
    }

    /// A vector of plain numbers.
    ///
    /// # Errors
    /// As [`ModelFiles::stored`].
    pub fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, ModelError> {
        self.stored(name, &[len])?.to_f32(&[len])
    }

    /// The tokens of a vocabulary in another order, from a tensor of whole numbers.
    ///
    /// # Errors
    /// As [`ModelFiles::stored`], and [`ModelError::Metadata`] if it does not hold every token once.
    pub(crate) fn ordering(&self, name: &str, vocab: usize) -> Result<Vec<TokenId>, ModelError> {
        match self {
            Self::Gguf(_) => Err(ModelError::MissingTensor(name.to_owned())),
            Self::Folder(folder) => folder.ordering(name, vocab),
        }
    }

    /// Frees the pages of a tensor that was copied.
    pub fn release(&self, name: &str) {
        match self {
            Self::Gguf(gguf) => gguf.release(name),
            Self::Folder(folder) => folder.release(name),
        }
    }

    /// Name of the model, as people write it: [`GgufFile::name`], [`Folder::name`].
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Gguf(gguf) => gguf.name(),
            Self::Folder(folder) => folder.name(),
        }
    }

    /// The name that a GGUF file gives itself, `general.name`; none for a folder.
    #[must_use]
    pub fn own_name(&self) -> Option<&str> {
        match self {
            Self::Gguf(gguf) => gguf.text("general.name"),
            Self::Folder(_) => None,
        }
    }

    /// The same, safe to show, where it is not [`Self::name`].
    #[must_use]
    pub fn other_name(&self) -> Option<String> {
        self.own_name().map(crate::error::clean).filter(|own| *own != self.name())
    }

    /// Path of the file or folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Gguf(gguf) => gguf.path(),
            Self::Folder(folder) => folder.path(),
        }
    }

    /// Name of the file or folder, without its path.
    #[must_use]
    pub fn file_name(&self) -> String {
        self.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Bytes of a tensor on disk; `None` if there is no such tensor.
    #[must_use]
    pub fn bytes_of(&self, name: &str) -> Option<u64> {
        match self {
            Self::Gguf(gguf) => gguf.bytes_of(name),
            Self::Folder(folder) => folder.bytes_of(name),
        }
    }

    /// Dtype of matrices that are loaded as stored: FP8 becomes bf16.
    #[must_use]
    pub fn loaded_dtype(&self) -> String {
        let stored = self.stored_dtype();
        if stored == "f8_e4m3" { "bf16".to_owned() } else { stored }
    }

    /// How the weights are stored: `q4_1`, `bf16`, `f8_e4m3`, or the name of a mixture, `Q4_K_M`.
    #[must_use]
    pub fn stored_dtype(&self) -> String {
        match self {
            Self::Gguf(gguf) => gguf.main_dtype(),
            Self::Folder(folder) => folder.main_dtype(),
        }
    }

    /// The tensors that a target of so many layers and its first draft modules read.
    #[must_use]
    pub fn loaded_tensors(&self, layers: usize, modules: usize) -> Vec<LoadedTensor<'_>> {
        match self {
            Self::Gguf(gguf) => gguf.loaded_tensors(layers, modules).collect(),
            Self::Folder(folder) => folder.loaded_tensors(modules).collect(),
        }
    }

    /// A tensor that the target or a draft module reads, as loading counts it.
    pub(crate) fn loaded_tensor(&self, name: &str) -> Option<LoadedTensor<'_>> {
        match self {
            Self::Gguf(gguf) => gguf.loaded_tensor(name),
            Self::Folder(folder) => folder.loaded_tensor(name),
        }
    }

    /// Bytes of all tensors on disk.
    #[must_use]
    pub fn tensor_bytes(&self) -> u64 {
        match self {
            Self::Gguf(gguf) => gguf.tensor_bytes(),
            Self::Folder(folder) => folder.tensor_bytes(),
        }
    }
}
