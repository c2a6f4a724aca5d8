//! What the events of drafting carry.

use serde::{Deserialize, Serialize};

use crate::alternative::NodeWorth;
use crate::drafting::Copied;
use crate::lattice::LatticeColumn;
use crate::token::{Piece, Prediction};

/// One proposed token, as the event carries it and as a session keeps it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct Drafted {
    /// Number of the round.
    pub round: u32,
    /// 0 to k − 1.
    pub index: u8,
    /// The proposal.
    pub token: Piece,
    /// Drafter's probability of it; none when it has no distribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(transform = crate::schema::probability))]
    pub q: Option<f32>,
    /// The distribution that it was drawn from.
    pub top: Prediction,
    /// In a tree, the row that judges it: 0 continues the anchor, i + 1 draft i. Absent in a chain (`index`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<u8>,
    /// Whether drafts of the same pass follow: a block drafter drafts several at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
    /// Where it was copied from; absent for a token that a model, or a person, proposed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied: Option<Copied>,
    /// Whether the grammar forced it: no other token was allowed there, so it cost no pass of a drafter.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
    /// Time of this draft step; of the first draft of a pass, the pass included.
    pub took_us: u64,
}

/// The token at which a draft ended, because the drafter's probability of it was below p-min. It is no draft.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct DraftStopped {
    /// Number of the round.
    pub round: u32,
    /// Index in the draft that the token would have had.
    pub index: u8,
    /// The drafter's best candidate, which is not verified.
    pub token: Piece,
    /// The drafter's probability of it, or the acceptance that DSpark's confidence head predicts.
    #[cfg_attr(test, schemars(transform = crate::schema::probability))]
    pub q: f32,
    /// The limit that q is below: p-min or, if the engine chooses k, that at which this draft would have paid.
    #[cfg_attr(test, schemars(transform = crate::schema::probability))]
    pub p_min: f32,
    /// Time of this draft step.
    pub took_us: u64,
}

/// A token that the grammar forbids and the drafter preferred, or would have copied. The target never saw it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct DraftRefused {
    /// Number of the round.
    pub round: u32,
    /// Index in the draft that the token would have had.
    pub index: u8,
    /// The token.
    pub token: Piece,
    /// Drafter's probability of it before the mask; none when it has no distribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(transform = crate::schema::probability))]
    pub q: Option<f32>,
    /// The rule that refused it: what the grammar expects there.
    pub expected: String,
}

/// The candidates of a round's positions, among which the drafter's selector chose the drafts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct Lattice {
    /// Number of the round.
    pub round: u32,
    /// One entry per position that the selector chose at.
    pub columns: Vec<LatticeColumn>,
}

/// What the alternatives of a round promised and cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct Alternatives {
    /// Number of the round.
    pub round: u32,
    /// One entry per alternative.
    pub worths: Vec<NodeWorth>,
}

/// The chain, or the tree, that the drafter proposed in a round of a probe run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct Probed {
    /// Number of the round.
    pub round: u32,
    /// The chain, up to [`Settings::probe_depth`](crate::Settings::probe_depth) tokens.
    pub drafts: Vec<ProbedDraft>,
    /// Time of the chain.
    pub took_us: u64,
}

/// One draft of a probe run: recorded, and not verified.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProbedDraft {
    /// The proposal.
    pub token: Piece,
    /// Drafter's probability of it; none when it has no distribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(transform = crate::schema::probability))]
    pub q: Option<f32>,
    /// The distribution that it was drawn from.
    pub top: Prediction,
    /// In a tree, the row that would judge it, as in [`EventKind::Drafted`](crate::EventKind::Drafted).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<u8>,
}
