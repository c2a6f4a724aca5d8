//! The plain answer that a drafter replays (the oracle, the dial): computed before the drafter needs it.
//!
//! Invariant: it is computed on a fork and on no lane's clock, and once for as long as it holds: other settings of the
//! drafter, such as a turn of the dial, need no other answer.

use draftscope_protocol::{Sampling, TokenId};

/// What a plain answer depends on: how tokens are picked, and whether with the draws of the lane, as under `exact`.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Picked {
    pub(super) sampling: Sampling,
    pub(super) is_exact: bool,
}

/// A plain answer.
pub(super) struct Replayed {
    pub(super) picked: Picked,
    /// Prompt and answer.
    pub(super) tokens: Vec<TokenId>,
    /// Whether nothing follows: the model ended it, or the context is full.
    pub(super) is_whole: bool,
}

impl Replayed {
    /// Whether it is what would be computed now: the plain answer after these tokens, up to `goal` tokens in all.
    pub(super) fn holds(&self, picked: Picked, committed: &[TokenId], goal: usize) -> bool {
        let is_long = self.is_whole || self.tokens.len() >= goal;
        self.picked == picked && is_long && self.tokens.starts_with(committed)
    }
}
