//! A place in the tree: a text that occurred, and what followed it.

use draftscope_protocol::TokenId;

/// A text that occurred before and was continued, as a place in a [`SuffixTree`](super::tree::SuffixTree). Valid until the
/// tree changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The last node on the way.
    pub(super) node: u32,
    /// Tokens after it, which are `text[at..at + rest]`.
    pub(super) rest: usize,
    pub(super) at: usize,
    pub(super) len: usize,
}

impl Cursor {
    /// Length of the text in tokens; 0 if nothing matches.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing matches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// What followed a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// The token.
    pub token: TokenId,
    /// Index in the text of a place where it followed.
    pub from: usize,
}
