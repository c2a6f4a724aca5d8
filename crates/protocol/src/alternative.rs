//! What alternatives to drafts promised, and what their rows cost.

use serde::{Deserialize, Serialize};

/// An alternative in a round's tree: why it was drafted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NodeWorth {
    /// Index in the draft.
    pub index: u8,
    /// Tokens that it was expected to gain: the chance that its row is reached times the chance that it is right there.
    #[cfg_attr(test, schemars(transform = super::schema::probability))]
    pub gain: f32,
    /// What one more row of the pass cost then, in tokens: its time over that of a token.
    pub cost: f32,
}
