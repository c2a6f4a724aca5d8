//! The run of a step: a prompt with all settings that its questions rest on.
//!
//! Invariant: a run sets the same on an engine as in its recording, so that what a lesson says of it holds for both.

use serde::Deserialize;

use draftscope_protocol::{
    Again, Baseline, Branch, Continuation, DraftLenMode, DrafterKind, Drafting, Lane, Leniency, MAX_DRAFT_LEN, Prompt,
    Rival, Sampling, Settings, VerifyRule,
};
use draftscope_session::{Session, Turn};

/// Longest answer of a lesson's run, unless the run says otherwise: enough to see what the lesson is about.
const TOKENS: u32 = 56;

/// A prompt with settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The prompt.
    pub prompt: String,
    /// Whether the prompt goes to the model unchanged, without the chat template.
    #[serde(default)]
    pub raw: bool,
    /// k.
    pub k: u8,
    /// The drafter: the draft module alone, unless the run says otherwise, since lessons count the k drafts of a round.
    #[serde(default = "module")]
    pub drafter: DrafterKind,
    /// How many of its drafts are right, if the drafter is the dial: 0 to 1.
    #[serde(default)]
    pub dial: Option<f32>,
    /// A text that the user drafts: it is judged from the last token of the prompt on. Without an engine it is this one.
    #[serde(default)]
    pub draft: Option<String>,
    /// The rule.
    #[serde(default)]
    pub rule: VerifyRule,
    /// Limits of the rules that are not lossless.
    #[serde(default)]
    pub leniency: Leniency,
    /// Temperature.
    #[serde(default)]
    pub temperature: f32,
    /// Seed of every draw.
    #[serde(default)]
    pub seed: u64,
    /// Longest answer, in tokens.
    #[serde(default = "usual_tokens")]
    pub tokens: u32,
    /// Hold after the prompt, so that the user steps.
    #[serde(default)]
    pub hold: bool,
    /// A rule that races beside on the same prompt.
    #[serde(default)]
    pub against: Option<VerifyRule>,
    /// A k that races beside.
    #[serde(default)]
    pub against_k: Option<u8>,
    /// Most threads that passes run on; 0 for all. With fewer than all the prompt is answered on all of them first, so that
    /// both can be compared.
    #[serde(default)]
    pub threads: u16,
    /// The recording of this very run, played where there is no engine; lessons of the user have none.
    #[serde(default)]
    pub recording: Option<String>,
}

const fn usual_tokens() -> u32 {
    TOKENS
}

const fn module() -> DrafterKind {
    DrafterKind::Mtp
}

/// The prompt that has a text of the user judged from the last token of a turn's prompt on; none where that turn has no
/// tokens.
#[must_use]
pub fn drafted(turn: &Turn, text: &str) -> Option<Prompt> {
    let answer = turn.answer(Lane::Speculative);
    (!answer.prompt.is_empty()).then(|| {
        Prompt::Branch(Continuation {
            typed: turn.typed.clone(),
            tokens: answer.prompt.clone(),
            branch: Branch { turn: turn.number, kept: 0, forced: false },
            again: Some(Again { drafts: Vec::new(), text: text.to_owned() }),
        })
    })
}

impl Run {
    /// All settings of the run, so that it is the one that was recorded; of the settings before only those that no lesson
    /// sets.
    #[must_use]
    pub fn settings(&self, before: &Settings) -> Settings {
        let usual = Settings::default();
        let wanted = Settings {
            draft_len_mode: DraftLenMode::Fixed,
            draft_len: self.k.min(MAX_DRAFT_LEN),
            threads: self.threads,
            drafter: self.drafter,
            drafting: Drafting { dial: self.dial.unwrap_or(usual.drafting.dial), ..usual.drafting },
            rule: self.rule,
            leniency: self.leniency,
            sampling: Sampling { temperature: self.temperature, seed: self.seed, ..usual.sampling },
            max_tokens: self.tokens,
            baseline: Baseline::Race,
            ..*before
        };
        Settings { rival: self.rival(&wanted), ..wanted }
    }

    /// What races beside, if anything.
    fn rival(&self, wanted: &Settings) -> Option<Rival> {
        let like = Rival::like(wanted);
        let rival = Rival {
            rule: self.against.unwrap_or(like.rule),
            draft_len: self.against_k.unwrap_or(like.draft_len).min(MAX_DRAFT_LEN),
            ..like
        };
        (self.against.is_some() || self.against_k.is_some()).then_some(rival)
    }

    /// Whether it ran and all its answers have come to their end.
    #[must_use]
    pub fn is_over(&self, session: &Session) -> bool {
        let ended = |turn: &Turn| turn.answer(Lane::Speculative).finished.is_some();
        !session.is_generating() && self.turn(session).is_some_and(ended)
    }

    /// The newest turn of a session that ran this.
    #[must_use]
    pub fn turn<'a>(&self, session: &'a Session) -> Option<&'a Turn> {
        self.turn_on(session, self.threads)
    }

    /// Of a run on fewer threads, the newest turn that answered the same prompt on all of them.
    #[must_use]
    pub fn turn_on_all<'a>(&self, session: &'a Session) -> Option<&'a Turn> {
        self.turn_on(session, 0)
    }

    fn turn_on<'a>(&self, session: &'a Session, threads: u16) -> Option<&'a Turn> {
        let races = |rival: Rival| (rival.rule, rival.draft_len);
        session.turns().iter().rev().find(|turn| {
            let begun = &turn.begun;
            turn.typed == self.prompt
                && begun.draft_len == self.k
                && begun.rule == self.rule
                && begun.sampling.temperature == self.temperature
                && begun.rival.map(races) == self.rival(begun).map(races)
                && begun.threads == threads
                && turn.branch.is_some() == self.draft.is_some()
        })
    }
}
