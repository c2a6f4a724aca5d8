//! What a decoder did: its tokens, rounds and rows.

use draftscope_protocol::{Prediction, TokenId};

/// One answer with all data that a diagnosis needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// The prompt's tokens.
    pub prompt: Vec<TokenId>,
    /// Output, up to its end token or the limit.
    pub tokens: Vec<TokenId>,
    /// Tokens of the prompt that were still in the cache from an earlier answer; the cache was rolled back to them.
    pub cached: usize,
    /// The row that the first token was picked from.
    pub first_row: Prediction,
    /// Rounds in order.
    pub rounds: Vec<RoundRecord>,
}

/// One round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoundRecord {
    /// Index of its first committed token in the output.
    pub first: usize,
    /// The drafts.
    pub drafts: Vec<TokenId>,
    /// The target's predictions, row by row of the pass.
    pub rows: Vec<Prediction>,
    /// Number of accepted drafts.
    pub accepted: usize,
    /// Indices of the accepted drafts, each continuing the one before: 0, 1, 2 … in a chain.
    pub path: Vec<usize>,
    /// Whether a draft was discarded, so that the cache was rolled back.
    pub rolled_back: bool,
    /// How many tokens it committed.
    pub committed: usize,
}

impl RoundRecord {
    /// The row from which committed token `index` was picked: the anchor's, then that of the accepted draft before it.
    #[must_use]
    pub fn row_of(&self, index: usize) -> Option<usize> {
        if index == 0 { Some(0) } else { self.path.get(index - 1).map(|draft| draft + 1) }
    }

    /// Drafts to run after the anchor so that row `i` yields committed token `i`: all drafts if the accepted path is
    /// the first ones in order, as in a chain; else only the accepted path of the tree.
    pub(super) fn line(&self) -> Vec<TokenId> {
        let is_straight = self.path.iter().enumerate().all(|(at, index)| at == *index);
        if is_straight {
            return self.drafts.clone();
        }
        self.path.iter().filter_map(|index| self.drafts.get(*index).copied()).collect()
    }
}

/// Where an answer ends.
#[derive(Clone, Copy)]
pub struct Ending<'a> {
    /// Longest answer in tokens.
    pub limit: usize,
    /// Whether a token ends an answer.
    pub is_end: &'a dyn Fn(TokenId) -> bool,
}

impl Record {
    /// The round that committed output token `index`; none for the first, which comes from the prompt.
    #[must_use]
    pub fn round_of(&self, index: usize) -> Option<usize> {
        self.rounds.iter().position(|round| (round.first..round.first + round.committed).contains(&index))
    }

    /// The row that output token `index` was picked from.
    #[must_use]
    pub fn row_of(&self, index: usize) -> Option<&Prediction> {
        match self.round_of(index) {
            Some(round) => {
                let round = &self.rounds[round];
                round.rows.get(round.row_of(index - round.first)?)
            }
            None => (index == 0).then_some(&self.first_row),
        }
    }

    /// First index at which two answers differ; none when they are the same.
    #[must_use]
    pub fn first_difference(&self, other: &Self) -> Option<usize> {
        let same = self.tokens.iter().zip(&other.tokens).take_while(|(a, b)| a == b).count();
        (same < self.tokens.len().max(other.tokens.len())).then_some(same)
    }
}
