//! The tokens that a draft module may propose: its draft vocabulary, and what stands in the text.
//!
//! A head trimmed to frequent tokens cannot draft the names and rare words of the text at hand, which a module is often
//! right to repeat. So tokens of its slots that the draft vocabulary lacks join it, for a row of the head each (a trimmed
//! vocabulary as in FR-Spec, arXiv 2502.14856, with the part of it that depends on the text added). Invariant: what has
//! joined is a function of the tokens in the cache; slots that are dropped take along what they brought. Rows of the head
//! are the backends' business.

use crate::protocol::TokenId;

/// Tokens of the text that may join a head that was trimmed when the program was started: only long texts have more.
pub const CONTEXT_VOCAB: usize = 1024;

/// Most tokens of the text that a module's config may let join.
pub const MAX_CONTEXT_VOCAB: usize = 1 << 14;

/// Tokens in the order of a module's logits.
#[derive(Clone, Debug, Default)]
pub struct DraftTokens {
    tokens: Vec<TokenId>, // the draft vocabulary, ascending; then what joined, by slot
    fixed: usize,
    room: usize,
    /// The slot that brought each of those that joined.
    brought_by: Vec<usize>,
}

impl DraftTokens {
    /// Of a draft vocabulary, ascending, which at most `room` tokens of the text may join.
    #[must_use]
    pub fn new(draft_vocab: Vec<TokenId>, room: usize) -> Self {
        Self { fixed: draft_vocab.len(), tokens: draft_vocab, room, brought_by: Vec::new() }
    }

    /// Tokens of the text that may join, at most.
    #[must_use]
    pub fn room(&self) -> usize {
        self.room
    }

    /// Token of each logit.
    #[must_use]
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// Tokens of the text that joined, in the order of their logits.
    #[must_use]
    pub fn joined(&self) -> &[TokenId] {
        &self.tokens[self.fixed..]
    }

    /// Slots from `first` on read these tokens; gives how many of them joined. When there is no more room nothing joins: the
    /// earliest stay.
    pub fn read(&mut self, first: usize, tokens: &[TokenId]) -> usize {
        let before = self.tokens.len();
        for (slot, token) in (first..).zip(tokens) {
            if self.brought_by.len() < self.room && !self.has(*token) {
                self.tokens.push(*token);
                self.brought_by.push(slot);
            }
        }
        self.tokens.len() - before
    }

    fn has(&self, token: TokenId) -> bool {
        let (fixed, joined) = self.tokens.split_at(self.fixed);
        fixed.binary_search(&token).is_ok() || joined.contains(&token)
    }

    /// Slots `len..` are dropped; gives how many tokens have joined then.
    pub fn truncate(&mut self, len: usize) -> usize {
        let kept = self.brought_by.partition_point(|slot| *slot < len);
        self.brought_by.truncate(kept);
        self.tokens.truncate(self.fixed + kept);
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[u32]) -> Vec<TokenId> {
        ids.iter().copied().map(TokenId).collect()
    }

    #[test]
    fn tokens_of_the_text_join_once_and_leave_with_their_slot() {
        let mut proposed = DraftTokens::new(ids(&[1, 5]), 3);
        assert_eq!(proposed.read(0, &ids(&[7, 5, 7, 3])), 2);
        assert_eq!((proposed.tokens(), proposed.joined()), (&ids(&[1, 5, 7, 3])[..], &ids(&[7, 3])[..]));
        assert_eq!(proposed.read(4, &ids(&[9, 8])), 1, "there is room for three");
        assert_eq!(proposed.truncate(4), 2);
        assert_eq!(proposed.read(4, &ids(&[8])), 1);
        assert_eq!(proposed.joined(), ids(&[7, 3, 8]));
        // 7 stood in slot 0 first
        assert_eq!(proposed.truncate(3), 1);
        assert_eq!(proposed.tokens(), ids(&[1, 5, 7]));
        assert_eq!(proposed.truncate(0), 0);
        assert_eq!(proposed.tokens(), ids(&[1, 5]));
    }

    #[test]
    fn nothing_joins_where_there_is_no_room() {
        let mut proposed = DraftTokens::new(ids(&[2]), 0);
        assert_eq!(proposed.read(0, &ids(&[1, 2, 3])), 0);
        assert_eq!(proposed.tokens(), ids(&[2]));
    }
}
