//! What should have been different in a round, and the reply.

use draftscope_protocol::{Outcome, Piece, VerifyRule};

/// What should have been different; `None` leaves it as it was.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WhatIf {
    /// k.
    pub draft_len: Option<usize>,
    /// The rule.
    pub rule: Option<VerifyRule>,
    /// The temperature.
    pub temperature: Option<f32>,
    /// A draft whose verdict is reversed.
    pub overrule: Option<usize>,
    /// Another draft token at a position, by its text.
    pub replace: Option<(usize, String)>,
}

impl WhatIf {
    /// Whether everything stays as it was.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What would have happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// Drafts and their outcomes, as far as known.
    pub judged: Vec<(Piece, Outcome)>,
    /// Tokens that the round would have committed, as far as known.
    pub committed: Vec<Piece>,
    /// What the recording lacks; `None` if the reply is whole.
    pub open: Option<String>,
    /// Whether the text still follows the target's own distribution.
    pub is_lossless: bool,
}
