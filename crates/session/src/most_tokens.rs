//! How many tokens a round can commit.

use draftscope_protocol::Lane;

use super::{Round, Turn};

impl Round {
    /// The longest chain of drafts that it has or is to have.
    #[must_use]
    pub fn longest_chain(&self) -> u64 {
        let drafted = (0..self.drafts.len()).map(|index| self.depth(index) as u64 + 1).max();
        drafted.unwrap_or(0).max(self.draft_len().into())
    }

    /// Tokens that it can commit: its longest chain, and one of the target.
    #[must_use]
    pub fn most_tokens(&self) -> u64 {
        self.longest_chain() + 1
    }
}

impl Turn {
    /// Tokens that a round of the turn could commit at most: one of the target after the longest chain that was drafted, which
    /// is longer than k where the text is copied, or after k drafts.
    #[must_use]
    pub fn most_tokens_per_round(&self) -> u64 {
        let longest = self.answer(Lane::Speculative).stats().offered_per_pos().len() as u64;
        longest.max(self.begun.draft_len.into()) + 1
    }
}
