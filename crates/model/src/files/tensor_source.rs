//! Tensors by name, wherever they are stored.

use crate::ModelError;
use crate::files::model_files::ModelFiles;
use crate::files::stored::Stored;
use draftscope_protocol::TokenId;

/// What loading reads tensors from: the files of a model, or those of a draft module.
pub trait TensorSource {
    /// Whether there is a tensor of this name.
    fn has(&self, name: &str) -> bool;

    /// A tensor of the given shape, outermost dimension first.
    ///
    /// # Errors
    /// [`ModelError::MissingTensor`], [`ModelError::Shape`], or a type that is not supported.
    fn stored(&self, name: &str, shape: &[usize]) -> Result<Stored<'_>, ModelError>;

    /// Frees the pages of a tensor that was copied.
    fn release(&self, _name: &str) {}

    /// An order of all tokens of a vocabulary of this size.
    ///
    /// # Errors
    /// When there is none, or it does not name each token once.
    fn ordering(&self, name: &str, _vocab: usize) -> Result<Vec<TokenId>, ModelError> {
        Err(ModelError::MissingTensor(name.to_owned()))
    }

    /// A vector of plain numbers.
    ///
    /// # Errors
    /// As [`TensorSource::stored`].
    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, ModelError> {
        self.stored(name, &[len])?.to_f32(&[len])
    }
}

impl TensorSource for ModelFiles {
    fn has(&self, name: &str) -> bool {
        Self::has(self, name)
    }

    fn stored(&self, name: &str, shape: &[usize]) -> Result<Stored<'_>, ModelError> {
        Self::stored(self, name, shape)
    }

    fn release(&self, name: &str) {
        Self::release(self, name);
    }

    fn ordering(&self, name: &str, vocab: usize) -> Result<Vec<TokenId>, ModelError> {
        Self::ordering(self, name, vocab)
    }
}
