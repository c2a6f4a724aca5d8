//! Whether a model on disk loads, without reading its weights: what `models info` says, and the first step of loading, so
//! that both agree.
//!
//! Invariant: what is rejected here is what loading rejects. Matrices are not read; norms and other small vectors are.

use std::path::Path;

use crate::ModelError;
use crate::interfaces::{Backend, LoadContext};
use crate::load::on_reference::OnReference;
use crate::load::open::OpenModel;
use crate::options::LoadOptions;
use crate::text::tokenizer::TextCodec;
use draftscope_protocol::TokenId;

/// Most special tokens that a tokenizer may name beyond the rows of the embedding.
const MAX_TOKENS_WITHOUT_ROW: usize = 8;

/// Checks everything that loading checks, short of reading weights: metadata, tokenizer, and names, shapes and types of
/// tensors.
///
/// # Errors
/// The first thing that is missing, damaged or not supported.
pub fn check(path: &Path) -> Result<(), ModelError> {
    OpenModel::open(path)?.checked().map(drop)
}

impl OpenModel {
    /// The tokenizer, after the checks of [`check`].
    ///
    /// # Errors
    /// As there.
    pub fn checked(&self) -> Result<TextCodec, ModelError> {
        let codec = self.codec()?;
        self.check_with(&codec)?;
        Ok(codec)
    }

    /// The checks of [`check`] after the tokenizer's own.
    ///
    /// # Errors
    /// As there.
    pub(super) fn check_with(&self, codec: &TextCodec) -> Result<(), ModelError> {
        self.check_tokens(codec)?;
        // a template that does not run is ignored with a notice; a file that cannot be read is an error
        match self.template_source() {
            Ok(_) | Err(ModelError::Template(_)) => self.check_tensors(),
            Err(error) => Err(error),
        }
    }

    /// Gemma 3 has a token for a picture, for which the text model has no row.
    fn check_tokens(&self, codec: &TextCodec) -> Result<(), ModelError> {
        let vocab = self.transformer().vocab;
        let all_special = (vocab..codec.len()).all(|id| codec.piece(TokenId(id as u32)).special);
        if codec.len() <= vocab || all_special && codec.len() - vocab <= MAX_TOKENS_WITHOUT_ROW {
            return Ok(());
        }
        Err(ModelError::Metadata(format!(
            "the tokenizer has {} tokens and the model embeds {vocab}; the files do not belong together",
            codec.len()
        )))
    }

    fn check_tensors(&self) -> Result<(), ModelError> {
        let options = LoadOptions::on_cpu(self.source.path().to_owned(), None);
        let config = self.config.as_ref();
        let context = LoadContext { options: &options, source: &self.source, config, ctx_len: 1, ends: &[] };
        OnReference::load(&context, &Backend::Unread, &mut |_, _, _| {}).map(drop)
    }
}
