//! The rules that accept or reject drafts. Pure functions of distributions and draws: no tensors, no model, no clock,
//! no stop rules.
//!
//! Drafts form a chain or a tree; row 0 of the target judges the drafts that continue the anchor, row i + 1 those that
//! continue draft i. Invariant: accepted drafts are a path from the anchor, a rejected draft continues a node of that
//! path, and all others were not reached. Under a lossless rule committed tokens follow `p` with every drafter.

mod block;
mod lenient;
mod lossless;
#[cfg(test)]
mod tests;
mod walk;

use super::distribution::Distribution;
use super::random::{Draws, Purpose};
use crate::{Copied, Drafted, Leniency, Piece, Prediction, TokenId, Verification, VerifyRule};

pub use block::Block;
pub use lenient::{Confidence, Threshold, TopK, Typical};
pub use lossless::{Exact, Rejection};

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

/// Address of the draws that belong to a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfRound {
    /// Position of the round's first draft.
    pub start: usize,
    /// Index in the round of the first judged draft: 0, unless only the rest of a round is judged again.
    pub first: usize,
}

/// What drafter and verifier need to know of a round besides tokens.
#[derive(Clone, Copy)]
pub struct RoundCtx<'a> {
    /// Position of the first draft in the context; it addresses the draws.
    pub position: usize,
    /// k: most tokens that the drafter may propose; in a tree, its depth.
    pub draft_len: usize,
    /// Whether the most probable token is taken instead of a draw (temperature 0).
    pub greedy: bool,
    /// Address of fresh draws for drafting and acceptance, which belong to the round and not to a position. Needed
    /// where draws of later positions affect an earlier one: `block`, trees, and a draft length that depends on the
    /// drafts.
    pub fresh: Option<OfRound>,
    /// Limits of the lenient rules.
    pub leniency: Leniency,
    /// The run's draws.
    pub draws: &'a dyn Draws,
}

impl RoundCtx<'_> {
    /// The target's own choice at depth `depth` (0 = after the anchor), and the draw that picked it; none if greedy.
    #[must_use]
    pub fn pick(&self, p: &Distribution, depth: usize) -> (TokenId, Option<f32>) {
        if self.greedy {
            return (p.argmax(), None);
        }
        let u = self.draws.uniform(Purpose::Next, self.position + depth);
        (p.pick(u), Some(u))
    }

    /// The draw for draft `index` of the round.
    #[must_use]
    pub fn draw(&self, purpose: Purpose, index: usize) -> f32 {
        match self.fresh {
            Some(OfRound { start, first }) => self.draws.fresh(purpose, start, first + index),
            None => self.draws.uniform(purpose, self.position + index),
        }
    }
}

/// Judges drafts: a pure function, without tensors, model or clock.
pub trait Verifier {
    /// Judges the drafts of one round. `target` has one row per draft plus one.
    fn verify(&self, ctx: &RoundCtx<'_>, drafts: &[Draft], target: &[Distribution]) -> Verification;
}

/// The verifier of a rule.
#[must_use]
pub fn verifier(rule: VerifyRule) -> &'static dyn Verifier {
    match rule {
        VerifyRule::Exact => &Exact,
        VerifyRule::Rejection => &Rejection,
        VerifyRule::Block => &Block,
        VerifyRule::Typical => &Typical,
        VerifyRule::TopK => &TopK,
        VerifyRule::Threshold => &Threshold,
        VerifyRule::Confidence => &Confidence,
    }
}

/// Whether drafts form a tree.
fn is_tree(drafts: &[Draft]) -> bool {
    drafts.iter().any(|draft| draft.row.is_some())
}
