//! What an engine's stream amounts to, whatever the engine: the first token, steps, and an end.

use draftscope_protocol::{
    Committed, CountedRound, Drafted, EventKind, Piece, Prediction, RoundStarted, Scored, StopReason, TokenId,
    Verification,
};

use super::socket::round::{self, Round};

/// Most drafts of a step, and most tokens that it commits.
pub const MAX_DRAFTS: usize = round::MAX_DRAFTS;

/// A part of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// The tokens of the prompt, where the server reports them with its answer.
    Prompt(Vec<Piece>),
    /// The prompt is processed, and the first token is known.
    First {
        /// The token.
        token: Piece,
        /// The prediction that it was picked from, if the server reports it.
        row: Option<Prediction>,
        /// Tokens of the prompt that were still in the cache.
        cached: u32,
        /// Time of the prompt in microseconds.
        took_us: u64,
    },
    /// A verification step.
    Step(Step),
    /// What the rounds of the answer drafted, reported at its end.
    Recounted(Vec<CountedRound>),
    /// The answer ended.
    End(StopReason),
    /// Something about this answer that the user should know: one sentence.
    Notice(String),
}

/// A verification step: k drafts, the accepted prefix, and one token of the target.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// Number of drafted tokens, at most [`MAX_DRAFTS`].
    pub drafted: usize,
    /// Number of accepted ones, at most `drafted`.
    pub accepted: usize,
    /// Committed tokens: accepted drafts, then the target's own; fewer where the answer ends.
    pub tokens: Vec<Piece>,
    /// The predictions that they were picked from: one for each, or none if the server reports none.
    pub rows: Vec<Prediction>,
    /// The target's probabilities of them, in the same way.
    pub probs: Vec<Option<f32>>,
    /// Time since the first token in microseconds.
    pub clock_us: u64,
    /// The round as the engine's plugin reported it.
    pub detail: Option<Box<Round>>,
}

/// The prediction of a row that the server does not report: all probability is outside the list.
#[must_use]
pub fn unreported() -> Prediction {
    Prediction { top: Vec::new(), tail: 1.0 }
}

impl Step {
    /// The events of this step as round `round`, with `base_len` positions in the cache before it. Unreported ids are
    /// [`TokenId::UNKNOWN`], and the prediction of an unreported row leaves all probability outside its list.
    #[must_use]
    pub fn events(mut self, round: u32, base_len: u32) -> Vec<EventKind> {
        if let Some(detail) = self.detail.take() {
            return detail.events(self.tokens, self.clock_us, round, base_len);
        }
        let drafted = self.drafted.min(MAX_DRAFTS);
        let accepted = self.accepted.min(drafted);
        let mut events = vec![EventKind::RoundStarted(RoundStarted { round, base_len, draft_len: drafted as u8 })];
        events.extend((0..drafted).map(|index| {
            let known = self.tokens.get(index).filter(|_| index < accepted).cloned();
            let token = known.unwrap_or_else(Piece::unknown);
            EventKind::Drafted(Drafted { round, index: index as u8, token, top: unreported(), ..Drafted::default() })
        }));
        if !self.rows.is_empty() {
            let rows = self.rows.into_iter().chain(std::iter::repeat_with(unreported)).take(drafted + 1).collect();
            events.push(EventKind::Scored(Scored { round, rows, ..Scored::default() }));
        }
        let next = self.tokens.get(accepted).map_or(TokenId::UNKNOWN, |piece| piece.id);
        let p = |index: usize| self.probs.get(index).copied().flatten();
        let verdict = Verification::counted(drafted, accepted, next, p);
        events.push(EventKind::Verified { round, verdict });
        events.push(EventKind::Committed(Committed {
            round,
            tokens: self.tokens,
            clock_us: self.clock_us,
            ..Committed::default()
        }));
        events
    }
}
