//! The verdict of verification on one round.

use serde::{Deserialize, Serialize};

use super::rule::Departure;
use super::token::{TokenId, finite};

/// Result of judging one draft token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The rule accepted it; it is part of the output.
    Accepted,
    /// The rule rejected it. It and all drafts after it are discarded.
    Rejected,
    /// It follows a rejected draft and was not judged.
    NotReached,
}

impl Outcome {
    /// The result of draft `index`, from 0, in a chain of which the first `accepted` drafts were accepted.
    #[must_use]
    pub const fn in_chain(index: usize, accepted: usize) -> Self {
        match index {
            _ if index < accepted => Self::Accepted,
            _ if index == accepted => Self::Rejected,
            _ => Self::NotReached,
        }
    }
}

/// Origin of the round's last committed token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NextKind {
    /// Every draft was accepted, or there was none: one more token from `p`.
    Bonus,
    /// A draft was rejected: the target's token that replaces it.
    Recovered,
}

/// The verdict on one draft token.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Judgement {
    /// Target's probability of the draft token, 0 to 1; none if the engine does not report it.
    #[serde(default, deserialize_with = "finite", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(transform = super::schema::probability))]
    pub p: Option<f32>,
    /// Drafter's probability of it, 0 to 1; 1 when the drafter is certain; none if the engine does not report it.
    #[serde(default, deserialize_with = "finite", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(transform = super::schema::probability))]
    pub q: Option<f32>,
    /// The uniform draw, 0 to 1, that was compared with p/q; none when nothing was drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(transform = super::schema::draw))]
    pub u: Option<f32>,
    /// The value that `u` had to stay below, if that is not p/q; 0 to 1. Under `block`: the probability with which
    /// drafts like these are accepted up to here (with `u` at or above it, this draft is still accepted if a longer
    /// prefix passes). Under `rejection` in a tree: the ratio of p and q after removing the drafts that were tried
    /// before at the same row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<f32>,
    /// The result.
    pub outcome: Outcome,
}

/// The verdict on a round: one judgement per draft, then the token that follows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Verification {
    /// In draft order. In a chain: accepted drafts, at most one rejected draft, the rest not reached. In a tree the
    /// accepted drafts are a path, and several drafts beside it may be rejected.
    pub judgements: Vec<Judgement>,
    /// The token that the target added.
    pub next: TokenId,
    /// Why the target added it.
    pub next_kind: NextKind,
    /// The uniform draw, 0 to 1, that picked `next`; none if the most probable token was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(transform = super::schema::draw))]
    pub next_u: Option<f32>,
    /// Σ max(0, p − q) over all tokens, 0 to 1: what `next` was drawn from, before it was normalised. Only under
    /// `rejection`, where one draft was tried at that row.
    #[serde(default, deserialize_with = "finite", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(transform = super::schema::probability))]
    pub left_over: Option<f32>,
    /// Whether the drafter's vocabulary has a token like `next`: without one it could not have drafted it. None where the
    /// drafter has all of the target's tokens, or where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_in_draft_vocab: Option<bool>,
    /// Whether the rule is lossless.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub lossless: bool,
    /// Accepted drafts that a lossless rule would not have accepted, in draft order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub departures: Vec<Departure>,
}

const fn yes() -> bool {
    true
}

impl Verification {
    /// A verdict of a lossless rule.
    #[must_use]
    pub const fn new(judgements: Vec<Judgement>, next: TokenId, next_kind: NextKind, next_u: Option<f32>) -> Self {
        Self {
            judgements,
            next,
            next_kind,
            next_u,
            left_over: None,
            next_in_draft_vocab: None,
            lossless: true,
            departures: Vec::new(),
        }
    }

    /// The verdict on a chain of which an engine reports counts: of `drafted` drafts the first `accepted` were accepted, and
    /// `next` followed. `p` gives the target's probability of an accepted draft, if it is known.
    #[must_use]
    pub fn counted(drafted: usize, accepted: usize, next: TokenId, p: impl Fn(usize) -> Option<f32>) -> Self {
        let judgement = |index| Judgement {
            p: if index < accepted { p(index) } else { None },
            q: None,
            u: None,
            limit: None,
            outcome: Outcome::in_chain(index, accepted),
        };
        let next_kind = if accepted == drafted { NextKind::Bonus } else { NextKind::Recovered };
        Self::new((0..drafted).map(judgement).collect(), next, next_kind, None)
    }

    /// Number of accepted drafts, 0 to k: the accepted prefix, or the accepted path of a tree.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.path().count()
    }

    /// Indices of the accepted drafts, in the order of the text.
    pub fn path(&self) -> impl Iterator<Item = usize> {
        let indexed = self.judgements.iter().enumerate();
        indexed.filter(|(_, judgement)| judgement.outcome == Outcome::Accepted).map(|(index, _)| index)
    }

    /// Number of drafts that were compared with the target: the accepted and the rejected ones.
    #[must_use]
    pub fn tested(&self) -> usize {
        self.judgements.iter().filter(|j| j.outcome != Outcome::NotReached).count()
    }
}
