//! Whether a text fits into a context, before all of it is split into tokens.
//!
//! Splitting takes hundreds of bytes of memory for each byte of text. A text that is far too long is split part by
//! part instead, until there are too many tokens.

use super::TextCodec;
use crate::model::ModelError;

/// Bytes a position above which a text is counted first. Prose has four or five bytes a token.
const USUAL: usize = 8;

/// Bytes of a part.
const PART: usize = 64 << 10;

/// Positions counted for each that there is: cutting a text in parts changes the tokens at the cuts.
const MARGIN: usize = 2;

impl TextCodec {
    /// Whether a prompt is not far too long for a context; the exact number of tokens is for the caller to check.
    ///
    /// # Errors
    /// [`ModelError::PromptTooLong`], and as [`TextCodec::encode`].
    pub fn check_length(&self, text: &str, ctx_len: usize) -> Result<(), ModelError> {
        if text.len() <= USUAL.saturating_mul(ctx_len) {
            return Ok(());
        }
        let most = MARGIN.saturating_mul(ctx_len);
        let (mut count, mut rest) = (0, text);
        while !rest.is_empty() {
            let (part, after) = rest.split_at(rest.floor_char_boundary(PART));
            count += self.encode(part)?.len();
            if count > most {
                return Err(ModelError::PromptTooLong { bytes: text.len(), ctx_len });
            }
            rest = after;
        }
        Ok(())
    }
}
