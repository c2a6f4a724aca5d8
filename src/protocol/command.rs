//! What a user of a source may ask of it. A replay ignores what only a live engine can do.

use serde::{Deserialize, Serialize};

use super::{Baseline, Branch, DrafterKind, Drafting, Leniency, Rival, Sampling, TokenId, VerifyRule};

/// A request to a source; obeyed between two phases of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Command {
    /// Answer a prompt.
    Generate {
        /// The prompt.
        prompt: Prompt,
    },
    /// Hold before the next phase.
    Pause,
    /// Go on.
    Resume,
    /// Run one phase (a draft token, the verify pass, the verdict, the commit), then hold.
    StepPhase,
    /// Run to the end of the round, then hold.
    StepRound,
    /// Fix k from the next round on.
    SetDraftLen {
        /// 0 to [`super::MAX_DRAFT_LEN`].
        draft_len: u8,
    },
    /// Let the engine choose k from the next round on; [`Command::SetDraftLen`] takes that back.
    SetAutoDraftLen,
    /// Change how the target picks from the next round on.
    SetSampling {
        /// The new values.
        sampling: Sampling,
    },
    /// Change the verification rule from the next round on.
    SetRule {
        /// The new rule.
        rule: VerifyRule,
    },
    /// Change where the rules that are not lossless draw the line, from the next round on.
    SetLeniency {
        /// The new values.
        leniency: Leniency,
    },
    /// Change who drafts from the next round on.
    SetDrafter {
        /// The new drafter.
        drafter: DrafterKind,
    },
    /// Change how drafters draft from the next round on.
    SetDrafting {
        /// The new values.
        drafting: Drafting,
    },
    /// The draft that [`super::EventKind::DraftAsked`] asked for; empty text drafts nothing.
    ProposeDraft {
        /// What the person thinks comes next, leading space included.
        text: String,
    },
    /// Change how plain decoding is measured: at once where it runs beside the answer, else from the next turn on.
    SetBaseline {
        /// The new way.
        baseline: Baseline,
    },
    /// Race other settings beside the run, or no longer: from the next turn on. A change of those that
    /// race already is in force from the next round on.
    SetRival {
        /// The settings; none races nobody.
        rival: Option<Rival>,
    },
    /// Change the longest answer, at once.
    SetMaxTokens {
        /// In tokens.
        max_tokens: u32,
    },
    /// Put words into the run's record; they come back as an event.
    Note {
        /// What they say.
        text: String,
        /// The round they are about; none for the run, or for a prompt's pass.
        round: Option<u32>,
        /// The turn whose prompt's pass they are about.
        turn: Option<u32>,
    },
    /// Mark a place in the run's record; it comes back as an event.
    Bookmark {
        /// The round; none for this moment, or for a prompt's pass.
        round: Option<u32>,
        /// The turn of that prompt's pass.
        turn: Option<u32>,
        /// What to call it; may be empty.
        label: String,
    },
    /// A recording only: how fast it plays.
    SetSpeed {
        /// 0.05 to 16 times its own pace.
        speed: f32,
    },
    /// A recording only: go on at once to the first event at or after this time. When that lies before
    /// what was sent last, the recording begins again.
    SkipTo {
        /// As events count it.
        at_us: u64,
    },
    /// A recording only: go on at once until such a place has been told, then hold.
    SkipToNext {
        /// What to look for.
        landmark: Landmark,
    },
    /// Recordings only: play this one of them from its start.
    PlayListed {
        /// Its place, from 1.
        number: u32,
    },
    /// End the turn after the round under way.
    Stop,
    /// End the run.
    Shutdown,
}

/// A place in a recording that is worth a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Landmark {
    /// The end of a round of the speculative lane in which a draft was rejected.
    Reject,
    /// A note or a bookmark.
    Mark,
    /// The end of this round of the speculative lane, or of the first one behind it.
    Round(u32),
}

/// What is to be answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prompt {
    /// Text that goes to the model as it stands.
    Raw(String),
    /// A conversation, rendered with the model's chat template; the last message is the user's.
    Chat(Vec<Message>),
    /// Go on from a committed point of an earlier turn.
    Branch(Continuation),
}

/// Tokens to go on from, exactly as they stand: nothing is encoded again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Continuation {
    /// What the user had typed.
    pub typed: String,
    /// The prompt of that turn and the part of its answer that is kept.
    pub tokens: Vec<TokenId>,
    /// Where it leaves that turn.
    pub branch: Branch,
    /// The last of `tokens` is the anchor of a round that is to be run again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<Again>,
}

/// A round that is run again from its anchor, under the settings of now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Again {
    /// Drafts that are proposed as they were.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drafts: Vec<TokenId>,
    /// What is proposed behind them, as text. With no drafts either, the drafter is asked as ever.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

impl Prompt {
    /// What the user typed: the raw text, or the last user message.
    #[must_use]
    pub fn typed(&self) -> &str {
        match self {
            Self::Raw(text) => text,
            Self::Chat(messages) => {
                messages.iter().rev().find(|m| m.role == Speaker::User).map_or("", |m| m.content.as_str())
            }
            Self::Branch(from) => &from.typed,
        }
    }

    /// The turn it goes on from, if it is no new prompt.
    #[must_use]
    pub fn branch(&self) -> Option<Branch> {
        match self {
            Self::Branch(from) => Some(from.branch),
            Self::Raw(_) | Self::Chat(_) => None,
        }
    }
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Speaker,
    /// What is said.
    pub content: String,
}

/// Who speaks in a conversation; names as chat templates know them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Speaker {
    /// Standing instructions.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
}
