//! Where a turn begins that goes on from an earlier one.

use serde::{Deserialize, Serialize};

/// Where a turn branches from an earlier one: it keeps that turn's prompt and the beginning of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Branch {
    /// Number of the turn that it branches from.
    pub turn: u32,
    /// Number of kept output tokens; they are the last `kept` tokens of the new prompt.
    pub kept: u32,
    /// Whether the user chose the last of them, so that the target might not have written this text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
}
