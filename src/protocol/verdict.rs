//! What verification decided about one round.

use serde::{Deserialize, Serialize};

use super::TokenId;

/// What became of one draft token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[serde(rename_all = "snake_case")]
pub enum NextKind {
    /// Every draft was accepted (also when there was none): one more token from `p`.
    Bonus,
    /// A draft was rejected: the token that stands in its place.
    Recovered,
}

/// The verdict on one draft token.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// Target's probability of the draft token, 0 to 1.
    pub p: f32,
    /// Drafter's probability of it, 0 to 1; 1 when the drafter is certain.
    pub q: f32,
    /// The uniform draw `p / q` was compared with; none when nothing was drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub u: Option<f32>,
    /// What became of it.
    pub outcome: Outcome,
}

/// The verdict on a round: one judgement per draft, then the token that follows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verification {
    /// In draft order: accepted ones, at most one rejected, the rest not reached.
    pub judgements: Vec<Judgement>,
    /// The token the target added.
    pub next: TokenId,
    /// Why it was the target's turn.
    pub next_kind: NextKind,
    /// The uniform draw `next` was picked with; none for the largest probability.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_u: Option<f32>,
}

impl Verification {
    /// Length of the accepted prefix, 0 to k.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.judgements.iter().take_while(|j| j.outcome == Outcome::Accepted).count()
    }

    /// Drafts that were compared with the target: the accepted ones and the rejected one.
    #[must_use]
    pub fn tested(&self) -> usize {
        self.judgements.iter().take_while(|j| j.outcome != Outcome::NotReached).count()
    }
}
