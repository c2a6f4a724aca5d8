//! An engine of somebody else: its name, and what can be asked of it.

use serde::{Deserialize, Serialize};

/// An engine to which draftscope is attached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EngineInfo {
    /// Its name, for example `llama-server`.
    pub name: String,
    /// Its version as it reports it; empty if it reports none.
    #[serde(default)]
    pub version: String,
    /// What can be asked of it. Prompts and stops are always possible.
    #[serde(default)]
    pub abilities: Vec<Ability>,
    /// When it reports how many tokens a round drafted.
    #[serde(default, skip_serializing_if = "DraftCounts::is_live")]
    pub draft_counts: DraftCounts,
    /// What it had counted when it was attached to; none if it publishes nothing, or has drafted nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<DraftTotals>,
    /// Why no speedup follows from the plain server's answers, such as that it runs another model: one sentence. None if
    /// it follows, or there is no such server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_speedup: Option<String>,
}

/// What a server counted since it started, all its users together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DraftTotals {
    /// Verification steps with drafts.
    pub steps: u64,
    /// Drafted tokens, more than 0.
    pub drafted: u64,
    /// Accepted ones.
    pub accepted: u64,
}

/// When an engine reports how many tokens a round drafted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DraftCounts {
    /// With the round.
    #[default]
    Live,
    /// At the end of an answer, as a `recounted` event. Until then only accepted drafts are known, and no figure counts
    /// drafts.
    AtEnd,
    /// Never: no figure counts drafts.
    Never,
}

impl DraftCounts {
    /// Whether each round reports its own.
    #[must_use]
    pub fn is_live(&self) -> bool {
        *self == Self::Live
    }
}

/// Something that can be asked of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Ability {
    /// To pause between two phases. Without it, a pause stops only the display.
    Pause,
    /// To run one phase or one round. Without it, a step shows one round more.
    Step,
    /// To change k.
    SetDraftLen,
    /// To change the drafter or the rule.
    SetDrafter,
    /// To change temperature, top-k, top-p, min-p, seed and the longest answer.
    SetSampling,
    /// To continue from any token of an answer.
    Branch,
    /// To run a round again with another draft or verdict.
    WhatIf,
    /// To decode plainly, or with a rival's settings, beside the answer.
    Compare,
    /// To run the lessons.
    Lessons,
    /// To give the target's predictions at the tokens of an answer that is over.
    AskRows,
    /// Written by a newer version.
    #[serde(other)]
    Unknown,
}

impl Ability {
    /// What it allows, for a sentence that says that an engine cannot.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Step => "run a single step",
            Self::SetDraftLen => "change k: it is set where the server is started",
            Self::SetDrafter => "change the drafter or the rule: they are set where the server is started",
            Self::SetSampling => "change how tokens are picked",
            Self::Branch => "continue from the middle of an answer",
            Self::WhatIf => "run a round again",
            Self::Compare => "decode plainly, or with other settings, beside the answer",
            Self::Lessons => "run a lesson",
            Self::AskRows => "give predictions afterwards",
            Self::Unknown => "do that",
        }
    }
}

/// A round as an attached engine counted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CountedRound {
    /// Number of drafted tokens.
    pub drafted: u8,
    /// Number of accepted ones; at most `drafted`.
    pub accepted: u8,
    /// Number of committed tokens: accepted + 1, fewer where the answer ends.
    pub committed: u16,
    /// Whether the engine sent it together with another one, so that it has no time of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub merged: bool,
}
