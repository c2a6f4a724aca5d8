//! The tokens that a draft module may propose: its draft vocabulary, and tokens of the text.
//!
//! A head trimmed to frequent tokens cannot draft the names and rare words of the current text, which a module often
//! repeats correctly. So tokens of the text that the draft vocabulary lacks join it, each with one row of the head (FR-Spec,
//! arXiv 2502.14856, trims the vocabulary; the part that depends on the text is added here). Invariant: the joined tokens
//! are a function of the tokens in the cache; dropping a slot drops the token that it added. The backends store the rows
//! of the head.

use draftscope_protocol::TokenId;

/// Most tokens of the text that may join a head that `--draft-vocab` trims; only long texts have more.
pub const CONTEXT_VOCAB: usize = 1024;

/// Most tokens of the text that a module's config may let join.
pub const MAX_CONTEXT_VOCAB: usize = 1 << 14;

/// Tokens in the order of a module's logits.
#[derive(Clone, Debug, Default)]
pub struct DraftTokens {
    tokens: Vec<TokenId>, // the draft vocabulary, ascending; then the joined tokens, by slot
    fixed: usize,
    room: usize,
    /// Slot of each joined token.
    brought_by: Vec<usize>,
}

impl DraftTokens {
    /// Starts with a draft vocabulary, ascending, which at most `room` tokens of the text may join.
    #[must_use]
    pub fn new(draft_vocab: Vec<TokenId>, room: usize) -> Self {
        Self { fixed: draft_vocab.len(), tokens: draft_vocab, room, brought_by: Vec::new() }
    }

    /// Most tokens of the text that may join.
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

    /// Adds the tokens of the slots from `first` on; returns how many joined. If there is no more room, none joins, and the
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

    /// Drops slots `len..`; returns how many joined tokens are left.
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
