//! A proposed token, as drafters hand it to a rule.

use crate::distribution::Distribution;
use crate::{Copied, Drafted, Piece, Prediction, TokenId};

/// A proposed token.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// The proposal.
    pub token: TokenId,
    /// The drafter's distribution at this position; none for drafters without one (n-gram, scripted).
    pub q: Option<Distribution>,
    /// Whether the token was drawn from `q`. If not, the rules treat it as certain: q = 1.
    pub drawn: bool,
    /// In a tree, the row that judges the draft: 0 if it continues the anchor, i + 1 if it continues draft i. None in a
    /// chain, where it is the draft's index.
    pub row: Option<usize>,
    /// Whether drafts of the same pass of the drafter follow.
    pub more: bool,
    /// Where it was copied from; none for a token that a model, or a person, proposed.
    pub copied: Option<Copied>,
    /// Whether the grammar forced it: no other token was allowed there.
    pub forced: bool,
}

impl Draft {
    /// A draft of a drafter without a distribution.
    #[must_use]
    pub const fn certain(token: TokenId) -> Self {
        Self { token, q: None, drawn: false, row: None, more: false, copied: None, forced: false }
    }

    /// A token of the text: certain, so q = 1.
    #[must_use]
    pub fn copy(token: TokenId, copied: Copied) -> Self {
        Self { copied: Some(copied), ..Self::certain(token) }
    }

    /// The only token that the grammar allows: certain, so q = 1, and p = 1, too.
    #[must_use]
    pub fn forced(token: TokenId) -> Self {
        Self { forced: true, ..Self::certain(token) }
    }

    /// A draft drawn from `q`.
    #[must_use]
    pub const fn drawn(token: TokenId, q: Distribution) -> Self {
        Self { token, q: Some(q), drawn: true, row: None, more: false, copied: None, forced: false }
    }

    /// What its event says of it: all but its round and the time of its step. `top` lists the best of q.
    #[must_use]
    pub fn event(&self, index: usize, top: Prediction) -> Drafted {
        Drafted {
            index: index as u8,
            token: Piece::new(self.token, Vec::new()),
            q: self.confidence(),
            top,
            row: self.row.map(|row| row as u8),
            more: self.more,
            copied: self.copied,
            forced: self.forced,
            ..Drafted::default()
        }
    }

    /// The draft as a node of a tree, judged by `row`.
    #[must_use]
    pub fn at_row(self, row: usize) -> Self {
        Self { row: Some(row), ..self }
    }

    /// The row that judges this draft, the `index`-th of its round.
    #[must_use]
    pub fn row_at(&self, index: usize) -> usize {
        self.row.unwrap_or(index)
    }

    /// Probability with which the token was proposed, 0 to 1: the rules divide by it.
    #[must_use]
    pub fn q_prob(&self) -> f32 {
        self.drawn.then(|| self.confidence()).flatten().unwrap_or(1.0)
    }

    /// Drafter's probability of its proposal, 0 to 1; none without a distribution.
    #[must_use]
    pub fn confidence(&self) -> Option<f32> {
        self.q.as_ref().map(|q| q.prob(self.token))
    }
}

/// Whether drafts form a tree.
pub(super) fn is_tree(drafts: &[Draft]) -> bool {
    drafts.iter().any(|draft| draft.row.is_some())
}
