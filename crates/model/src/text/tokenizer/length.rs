//! Rejects texts that cannot fit into a context before all of their tokens are computed.
//!
//! Tokenising takes hundreds of bytes of memory for each byte of text. A very long text is therefore tokenised part by
//! part, until there are too many tokens.

use super::codec::TextCodec;
use crate::ModelError;

/// A text of more bytes per position of the context is counted first. Prose has four or five bytes per token.
const USUAL: usize = 8;

/// Bytes per part.
const PART: usize = 64 << 10;

/// A text is too long if it has more than this many tokens per position: cutting it into parts changes the tokens at the
/// cuts.
const MARGIN: usize = 2;

impl TextCodec {
    /// Rejects a prompt that is far too long for a context; the caller checks the exact number of tokens.
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
