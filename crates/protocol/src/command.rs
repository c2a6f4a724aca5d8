//! The commands that a source takes. A replay ignores those that only a live engine can obey.

use serde::{Deserialize, Serialize};

use super::branch::Branch;
use super::drafting::{DrafterKind, Drafting};
use super::rule::{Leniency, VerifyRule};
use super::settings::{Baseline, Rival, Sampling};
use super::token::TokenId;

/// A request to a source, which obeys it between two phases of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Command {
    /// Answer a prompt.
    Generate {
        /// The prompt.
        prompt: Prompt,
    },
    /// Pause before the next phase.
    Pause,
    /// Continue after a pause.
    Resume,
    /// Run one phase (a draft token, the verify pass, the verdict, the commit), then pause.
    StepPhase,
    /// Run to the end of the round, then pause.
    StepRound,
    /// Fix k from the next round on.
    SetDraftLen {
        /// 0 to [`super::MAX_DRAFT_LEN`].
        draft_len: u8,
    },
    /// Let the engine choose k from the next round on; [`Command::SetDraftLen`] ends this.
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
    /// Change the limits of the rules that are not lossless, from the next round on.
    SetLeniency {
        /// The new values.
        leniency: Leniency,
    },
    /// Change the drafter from the next round on.
    SetDrafter {
        /// The new drafter.
        drafter: DrafterKind,
    },
    /// Change how drafters draft from the next round on.
    SetDrafting {
        /// The new values.
        drafting: Drafting,
    },
    /// The draft that [`super::EventKind::DraftAsked`] requested; empty text drafts nothing.
    ProposeDraft {
        /// The text that the person expects next, leading space included.
        text: String,
    },
    /// Change how plain decoding is measured: at once if the plain lane runs beside the answer, else from the next turn
    /// on.
    SetBaseline {
        /// The new value.
        baseline: Baseline,
    },
    /// Start or end a rival from the next turn on. Changed settings of a running rival are in force from its next round
    /// on.
    SetRival {
        /// The rival's settings; none runs no rival.
        rival: Option<Rival>,
    },
    /// Change how many threads passes run on, from the next round on.
    SetThreads {
        /// As in [`super::Settings`].
        threads: u16,
    },
    /// Change the longest answer, at once.
    SetMaxTokens {
        /// In tokens.
        max_tokens: u32,
    },
    /// Add a note to the run; the source answers with [`super::EventKind::Noted`].
    Note {
        /// The note's text.
        text: String,
        /// The round that the note is about; none for the run, or for the prefill of `turn`.
        round: Option<u32>,
        /// The turn whose prefill the note is about.
        turn: Option<u32>,
    },
    /// Set a bookmark in the run; the source answers with [`super::EventKind::Bookmarked`].
    Bookmark {
        /// The round; none for this moment, or for the prefill of `turn`.
        round: Option<u32>,
        /// The turn whose prefill it marks.
        turn: Option<u32>,
        /// Its name; may be empty.
        label: String,
    },
    /// Decode a turn plainly to the end of its answer, as soon as nothing else is under way, so that all of it can be
    /// compared. A prompt that comes meanwhile ends it.
    FinishPlain {
        /// The answer so far.
        plain: PlainAnswer,
    },
    /// Attached engines only: ask for the target's prediction at each token of the newest answer, one request a token.
    AskRows,
    /// Recordings only: set the playing speed.
    SetSpeed {
        /// 0.05 to 16 times the recorded pace.
        speed: f32,
    },
    /// Recordings only: skip to the first event at or after this time. If that event was already sent, the recording
    /// starts again from its beginning.
    SkipTo {
        /// Microseconds since the run started.
        at_us: u64,
    },
    /// Recordings only: send all events up to the next such place at once, then pause.
    SkipToNext {
        /// The kind of place.
        landmark: Landmark,
    },
    /// Several recordings only: play this one from its start.
    PlayListed {
        /// Number of the recording, from 1.
        number: u32,
    },
    /// End the turn after the current round.
    Stop,
    /// End the run.
    Shutdown,
}

/// A place in a recording to skip to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Landmark {
    /// The end of a round of the speculative lane in which a draft was rejected.
    Reject,
    /// A note or a bookmark.
    Mark,
    /// The end of this round of the speculative lane, or of the first one after it.
    Round(u32),
}

/// A prompt to answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prompt {
    /// Text that goes to the model unchanged.
    Raw(String),
    /// A conversation, rendered with the model's chat template; the last message is the user's.
    Chat(Vec<Message>),
    /// Continue from a committed token of an earlier turn.
    Branch(Continuation),
}

/// Tokens to continue from, exactly these: no text is encoded again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Continuation {
    /// The text that the user typed in the earlier turn.
    pub typed: String,
    /// The prompt of the earlier turn and the part of its answer that is kept.
    pub tokens: Vec<TokenId>,
    /// Where the branch leaves the earlier turn.
    pub branch: Branch,
    /// A round to repeat, whose anchor is the last of `tokens`; none continues normally.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<Again>,
}

/// A round to repeat from its anchor with the current settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Again {
    /// Drafts to propose again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drafts: Vec<TokenId>,
    /// Text to propose after these drafts. If both are empty, the drafter drafts as usual.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// The plain answer to a turn, so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlainAnswer {
    /// Number of the turn.
    pub turn: u32,
    /// The prompt and what the plain lane wrote, its last token the anchor; the prompt alone where it wrote nothing.
    pub tokens: Vec<TokenId>,
    /// How many of them, the last ones, are the beginning of the answer.
    #[serde(default)]
    pub written: u32,
    /// Whether the plain lane wrote anything.
    pub has_begun: bool,
    /// Most tokens that are still to be written.
    pub more: u32,
    /// Rounds it took so far.
    pub rounds: u32,
    /// Its clock after them, in microseconds.
    pub clock_us: u64,
    /// How the turn's tokens are picked.
    pub sampling: Sampling,
}

impl Prompt {
    /// The text that the user typed: the raw text, or the last user message.
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

    /// The branch, if it continues an earlier turn.
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
    /// The speaker.
    pub role: Speaker,
    /// The text.
    pub content: String,
}

/// The speakers of a conversation, named as in chat templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Speaker {
    /// Instructions for the whole conversation.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
}
