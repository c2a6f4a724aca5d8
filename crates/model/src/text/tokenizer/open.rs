//! Reads a tokenizer from the files of a model.

use super::codec::{TextCodec, broken};
use super::{gguf, json};
use crate::ModelError;
use crate::catch_panic::catch_panic;
use crate::files::{GgufFile, SideFiles};

impl TextCodec {
    /// Reads the `tokenizer.ggml.*` keys.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] for another kind of tokenizer, [`ModelError::Tokenizer`] if the
    /// vocabulary is inconsistent.
    pub fn from_gguf(gguf: &GgufFile) -> Result<Self, ModelError> {
        catch_panic(broken, || gguf::codec(gguf))
    }

    /// A warning if the rule for splitting text had to be guessed.
    #[must_use]
    pub fn guess(gguf: &GgufFile) -> Option<String> {
        gguf::guess(gguf)
    }

    /// Reads `tokenizer.json`, and from the files beside it which tokens begin and end a text. With `begins`, texts begin
    /// with the family's own token even if the files do not say so.
    ///
    /// # Errors
    /// As [`TextCodec::from_gguf`].
    pub fn from_folder(folder: &SideFiles, begins: bool) -> Result<Self, ModelError> {
        catch_panic(broken, || json::codec(folder, begins))
    }
}
