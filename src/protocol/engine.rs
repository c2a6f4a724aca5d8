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
            Self::Unknown => "do that",
        }
    }
}
