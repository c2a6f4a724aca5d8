//! What verification decided about one round.

use serde::{Deserialize, Serialize};

use super::token::written;
use super::{Departure, TokenId};

/// What became of one draft token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It matched and is part of the output.
    Accepted,
    /// The first that did not; it and all after it are discarded.
    Rejected,
    /// It stood behind a rejected one and was never judged.
    NotReached,
}

/// Where the round's last committed token came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NextKind {
    /// Every draft was accepted (also when there was none): one more token from `p`.
    Bonus,
    /// A draft was rejected: the token that stands in its place.
    Recovered,
}

/// The verdict on one draft token.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Judgement {
    /// Target's probability of the draft token, 0 to 1.
    #[serde(deserialize_with = "written")]
    #[cfg_attr(test, schemars(transform = super::schema::probability))]
    pub p: f32,
    /// Drafter's probability of it, 0 to 1; 1 when the drafter is certain.
    #[serde(deserialize_with = "written")]
    #[cfg_attr(test, schemars(transform = super::schema::probability))]
    pub q: f32,
    /// The uniform draw `p / q` was compared with; none when nothing was drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(transform = super::schema::draw))]
    pub u: Option<f32>,
    /// What `u` had to stay below, where that is not p/q: under `block` the share of drafts like these that it
    /// accepts up to here (a draft at or above it is accepted with a longer prefix that passed), and in a tree under
    /// `rejection` the ratio of what drafts tried before at the same row left of p and q. 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<f32>,
    /// What became of it.
    pub outcome: Outcome,
}

/// The verdict on a round: one judgement per draft, then the token that follows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Verification {
    /// In draft order. In a chain: accepted ones, at most one rejected, the rest not reached. In a
    /// tree the accepted ones are a path, and several that stood beside it may be rejected.
    pub judgements: Vec<Judgement>,
    /// The token the target added.
    pub next: TokenId,
    /// Why it was the target's turn.
    pub next_kind: NextKind,
    /// The uniform draw `next` was picked with; none for the largest probability.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(transform = super::schema::draw))]
    pub next_u: Option<f32>,
    /// Whether the rule that judged is lossless.
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
        Self { judgements, next, next_kind, next_u, lossless: true, departures: Vec::new() }
    }

    /// How many drafts were accepted, 0 to k: the accepted prefix, or the accepted path of a tree.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.path().count()
    }

    /// Indices of the accepted drafts, in the order of the text.
    pub fn path(&self) -> impl Iterator<Item = usize> {
        let indexed = self.judgements.iter().enumerate();
        indexed.filter(|(_, judgement)| judgement.outcome == Outcome::Accepted).map(|(index, _)| index)
    }

    /// Drafts that were compared with the target: the accepted ones and the rejected.
    #[must_use]
    pub fn tested(&self) -> usize {
        self.judgements.iter().filter(|j| j.outcome != Outcome::NotReached).count()
    }
}
