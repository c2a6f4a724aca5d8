//! Tokens that the keys of a GGUF file name by their ids.

use crate::ModelError;
use crate::files::{GgufFile, whole};
use draftscope_protocol::TokenId;

/// The token that a key names; `None` if the key is missing.
///
/// # Errors
/// [`ModelError::Tokenizer`] naming the key if it is no token of this vocabulary.
pub(super) fn named_token(gguf: &GgufFile, key: &str, vocab: usize) -> Result<Option<TokenId>, ModelError> {
    let Ok(value) = gguf.value(key) else { return Ok(None) };
    // some writers mark a token that does not exist with the largest number
    let id = whole(value).filter(|id| *id != u64::from(u32::MAX));
    match (id, id.and_then(|id| u32::try_from(id).ok()).filter(|id| (*id as usize) < vocab)) {
        (None, _) => Ok(None),
        (_, Some(id)) => Ok(Some(TokenId(id))),
        (Some(id), None) => {
            Err(ModelError::Tokenizer(format!("'{key}' is {id}, and the vocabulary has {vocab} tokens")))
        }
    }
}

/// The tokens besides `eos` that end a turn or a message.
///
/// # Errors
/// As [`named_token`].
pub(super) fn more_ends(gguf: &GgufFile, vocab: usize) -> Result<Vec<TokenId>, ModelError> {
    let named = |end: &&str| named_token(gguf, &format!("tokenizer.ggml.{end}_token_id"), vocab).transpose();
    ["eot", "eom"].iter().filter_map(named).collect()
}
