//! The rules by which drafts are accepted. Pure: distributions and draws in, a verdict out; no
//! tensors, no model, no clock, no stop rules.
//!
//! Drafts form a chain or a tree; row 0 of the target judges what follows the anchor, row i + 1 what
//! follows draft i. Invariant: accepted drafts are a path from the anchor, a rejected one stands beside
//! or behind that path, and all others were not reached. Under a lossless rule committed tokens follow
//! `p`, whoever drafted.

mod block;
mod lenient;
mod lossless;
#[cfg(test)]
mod tests;
mod walk;

use super::distribution::Distribution;
use super::random::{Draws, Purpose};
use crate::protocol::{Leniency, TokenId, Verification, VerifyRule};

pub use block::Block;
pub use lenient::{Confidence, Threshold, TopK, Typical};
pub use lossless::{Exact, Rejection};

/// A proposed token.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// The proposal.
    pub token: TokenId,
    /// What the drafter thinks of this position; `None` = nothing (n-gram, scripted).
    pub q: Option<Distribution>,
    /// Whether the token was drawn from `q`. One that was not is certain to the rules.
    pub drawn: bool,
    /// In a tree, the row that judges the draft: 0 is the anchor's, i + 1 that of draft i, which it
    /// continues. None in a chain, where it is the draft's own index.
    pub row: Option<usize>,
}

impl Draft {
    /// A token of a drafter without distribution.
    #[must_use]
    pub const fn certain(token: TokenId) -> Self {
        Self { token, q: None, drawn: false, row: None }
    }

    /// A token drawn from `q`.
    #[must_use]
    pub const fn drawn(token: TokenId, q: Distribution) -> Self {
        Self { token, q: Some(q), drawn: true, row: None }
    }

    /// The same as a node of a tree, judged by `row`.
    #[must_use]
    pub fn at_row(self, row: usize) -> Self {
        Self { row: Some(row), ..self }
    }

    /// The row that judges this draft, the `index`-th of its round.
    #[must_use]
    pub fn row_at(&self, index: usize) -> usize {
        self.row.unwrap_or(index)
    }

    /// Probability with which the token was proposed, 0 to 1: what rules divide by.
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

/// Where the draws lie that belong to a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfRound {
    /// Position of the round's first draft.
    pub start: usize,
    /// Index in the round of the first draft at hand: 0, but where the rest of a round is judged again.
    pub first: usize,
}

/// What a round hands to drafter and verifier besides tokens.
#[derive(Clone, Copy)]
pub struct RoundCtx<'a> {
    /// Position of the first draft in the context; it addresses the draws.
    pub position: usize,
    /// Most tokens the drafter may propose; in a tree, its depth.
    pub draft_len: usize,
    /// Whether the largest probability is taken instead of a draw (temperature 0).
    pub greedy: bool,
    /// Where drafts and acceptance take draws that belong to the round, not to a position. Needed where draws of
    /// later positions decide on an earlier one: `block`, trees, and a k that follows from what was drafted.
    pub fresh: Option<OfRound>,
    /// Where lenient rules draw the line.
    pub leniency: Leniency,
    /// The run's draws.
    pub draws: &'a dyn Draws,
}

impl RoundCtx<'_> {
    /// The target's own choice at depth `depth` (0 = behind the anchor), and the draw it took.
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

/// Pure: no tensors, no model, no clock. `target` has one row per draft plus one.
pub trait Verifier {
    /// Judges the drafts of one round.
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
