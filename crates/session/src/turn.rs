//! A turn: what was typed and each lane's answer to it.
//!
//! Invariant: `tokens` is exactly what the lane has output in this turn, in order; provenance is decided once, when a
//! round commits, from its verdict and the length of the commit (a stop rule may have cut it). Discarded drafts are not
//! stored twice: [`Answer::transcript`] interleaves them.

use std::sync::{Arc, LazyLock};

use draftscope_protocol::{
    Alternatives, Branch, Committed, DraftRefused, EventKind, Lane, Lattice, Masked, NextKind, Piece, Prediction,
    Prefilled, RoundStarted, Scored, Settings, StopReason, TokenId, Verification, VerifyRule,
};

use super::fate::Provenance;
use super::kept_rounds::FULL_ROUNDS;
use super::memo::Memo;
use super::phase::Phase;
use super::round::{Round, keep_first, provenance};
use super::stats::LaneStats;
use super::text;
use super::thought::ThoughtScan;
use super::turn_measured::Measured;

/// Most rows of a pass, and so most drafts of a round: a draft's number is a byte.
const MOST_ROWS: usize = 257;

/// One output token.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// The token.
    pub piece: Piece,
    /// Where it came from.
    pub provenance: Provenance,
    /// Round that committed it; 0 for the first, which comes from prefill.
    pub round: u32,
    /// Position in the whole sequence, prompt included.
    pub position: usize,
    /// What a lossless rule would have committed after the same tokens, if that is another token: here the text left
    /// the lossless path.
    pub instead: Option<TokenId>,
    /// Whether it is thought, which a model writes before its answer; the marks around it count.
    pub is_thought: bool,
}

/// A prompt and the answers to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// 1, 2, 3 …
    pub number: u32,
    /// What the user typed.
    pub typed: String,
    /// The turn that this one continues, if it does not answer a new prompt.
    pub branch: Option<Branch>,
    /// The settings in force when it began: they explain the turn, whatever was set later.
    pub begun: Settings,
    /// Shared with copies of the session: going back in time keeps many.
    pub(super) answers: [Arc<Answer>; Lane::ALL.len()],
    /// Whether it ran on the native CPU backend, where no pass over several rows takes less time than one over one row.
    pub(super) has_ceiling: bool,
    /// Whether an engine of somebody else answered.
    pub(super) is_attached: bool,
    /// Whether what decoded beside it was another model, or drafted as well.
    pub(super) has_other_plain: bool,
    /// Its speedups, computed on first use.
    pub(super) measured: Memo<Measured>,
}

impl Turn {
    pub(super) fn new(number: u32) -> Self {
        Self {
            number,
            typed: String::new(),
            branch: None,
            begun: Settings::default(),
            answers: no_answers(),
            has_ceiling: false,
            is_attached: false,
            has_other_plain: false,
            measured: Memo::default(),
        }
    }

    /// Whether an engine of somebody else answered.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.is_attached
    }

    /// Whether it is known how drafts were judged: an attached engine reports its rule through a plugin only, and the
    /// default stands where none was reported.
    #[must_use]
    pub fn reports_rule(&self) -> bool {
        let mut rounds = self.answer(Lane::Speculative).rounds.iter();
        !self.is_attached || rounds.any(|round| round.rule != VerifyRule::default())
    }

    /// A lane's answer; empty when the lane did not run.
    #[must_use]
    pub fn answer(&self, lane: Lane) -> &Answer {
        &self.answers[lane.index()]
    }
}

/// One lane's answer to a prompt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Number of the turn.
    pub turn: u32,
    /// Tokens of the prompt, template and earlier turns included.
    pub prompt: Vec<TokenId>,
    /// How many of them were still in the cache.
    pub cached: u32,
    /// Time of the prompt's passes.
    pub prefill_us: u64,
    /// The row that the first token was picked from.
    pub first_row: Prediction,
    /// The same as a round without drafts, number 0, which is not among [`Answer::rounds`].
    pub prefill: Arc<Round>,
    /// Output so far; tokens copied from another turn come first.
    pub tokens: Vec<Token>,
    /// How many of them a branch copied.
    pub kept: usize,
    /// Rounds so far; the last may be incomplete. Shared with copies of the session.
    pub rounds: Vec<Arc<Round>>,
    /// Why it ended; `None` while it runs.
    pub finished: Option<StopReason>,
    pub(super) stats: LaneStats,
    /// Indices of rounds from which on other settings were in force, and these.
    pub(super) changes: Vec<(usize, Settings)>,
    /// What was thought so far, and at the start of the answer.
    pub(super) thought: [ThoughtScan; 2],
}

impl Answer {
    /// From a `prefilled` event, whose last `kept` tokens are output of another turn.
    pub(super) fn prefilled(event: &Prefilled, kept: usize, settings: &Settings) -> Self {
        let Prefilled { turn, prompt, cached, first, row, took_us, .. } = event;
        let scored = Scored { rows: vec![row.clone()], verify_us: *took_us, ..Scored::default() };
        let prefill = Round {
            turn: *turn,
            started: RoundStarted { base_len: prompt.len().saturating_sub(1) as u32, ..RoundStarted::default() },
            rule: settings.rule,
            sampling: settings.sampling,
            leniency: settings.leniency,
            scored: Some(scored),
            verdict: Some(Verification::new(Vec::new(), first.id, NextKind::Bonus, None)),
            commit: Some(Committed { tokens: vec![first.clone()], ..Committed::default() }),
            first_token: kept.min(prompt.len()),
            ..Round::default()
        };
        let (prompt, taken) = prompt.split_at(prompt.len().saturating_sub(kept));
        let mut answer = Self {
            thought: [(); 2].map(|()| ThoughtScan::after_prompt(prompt)),
            prefill: Arc::new(prefill),
            turn: *turn,
            prompt: prompt.iter().map(|piece| piece.id).collect(),
            kept: taken.len(),
            cached: *cached,
            prefill_us: *took_us,
            first_row: row.clone(),
            stats: LaneStats::prefilled(*took_us),
            ..Self::default()
        };
        for piece in taken {
            answer.push(piece.clone(), (Provenance::Kept, None), 0);
        }
        answer.push(first.clone(), (Provenance::Prefill, None), 0);
        answer
    }

    /// Applies an event of a round, the run's `seq`-th; returns what the lane does next, or `None` if it was ignored.
    pub(super) fn apply(&mut self, kind: &EventKind, settings: &Settings, seq: u64) -> Option<Phase> {
        match kind {
            EventKind::RoundStarted(started) => Some(self.start_round(Round {
                started: started.clone(),
                rule: settings.rule,
                sampling: settings.sampling,
                leniency: settings.leniency,
                shapes_drafts: settings.shapes_drafts(),
                ..Round::default()
            })),
            EventKind::Drafted(draft) => {
                let round = self.round_mut(draft.round)?;
                round.draft(draft.clone());
                Some(if round.drafts.len() >= round.draft_len().into() { Phase::Verifying } else { Phase::Drafting })
            }
            EventKind::DraftStopped(stopped) => {
                self.round_mut(stopped.round)?.stopped = Some(Box::new(stopped.clone()));
                Some(Phase::Verifying)
            }
            EventKind::Lattice(Lattice { round, .. })
            | EventKind::Alternatives(Alternatives { round, .. })
            | EventKind::DraftRefused(DraftRefused { round, .. })
            | EventKind::Masked(Masked { round, .. }) => {
                self.round_mut(*round)?.note_choice(kind, MOST_ROWS);
                None
            }
            EventKind::Probed(probed) => {
                let round = self.round_mut(probed.round)?;
                let mut probed = probed.clone();
                keep_first(&mut probed.drafts, MOST_ROWS);
                round.probed = Some(Box::new(probed));
                Some(Phase::Verifying)
            }
            EventKind::Scored(scored) => {
                let round = self.round_mut(scored.round)?;
                let mut scored = scored.clone();
                keep_first(&mut scored.rows, MOST_ROWS);
                round.scored = Some(scored);
                Some(Phase::Judging)
            }
            EventKind::Verified { round, verdict } => {
                let mut verdict = verdict.clone();
                verdict.judgements.truncate(MOST_ROWS);
                verdict.departures.truncate(MOST_ROWS);
                self.round_mut(*round)?.verdict = Some(verdict);
                Some(Phase::Committing)
            }
            EventKind::Committed(commit) => self.commit(commit, seq),
            EventKind::Recounted { rounds } => self.recount(rounds),
            _ => None,
        }
    }

    fn start_round(&mut self, round: Round) -> Phase {
        if let Some(old) = self.rounds.len().checked_sub(FULL_ROUNDS) {
            Arc::make_mut(&mut self.rounds[old]).shrink();
        }
        let phase = if round.draft_len() == 0 { Phase::Verifying } else { Phase::Drafting };
        let clock_before_us = self.rounds.last().map_or(0, |before| before.clock_us());
        let (turn, first_token) = (self.turn, self.tokens.len());
        let drafts_unknown = self.stats.is_uncounted;
        self.rounds.push(Arc::new(Round { turn, first_token, clock_before_us, drafts_unknown, ..round }));
        phase
    }

    /// The engine waited within the running round, or right before it.
    pub(super) fn note_wait(&mut self) {
        if let Some(round) = self.rounds.last_mut().filter(|round| !round.is_complete()) {
            Arc::make_mut(round).follows_wait = true;
        }
    }

    /// The round with this number, if it is still open.
    fn round_mut(&mut self, number: u32) -> Option<&mut Round> {
        let round = self.rounds.last_mut()?;
        (round.number() == number && !round.is_complete()).then(|| Arc::make_mut(round))
    }

    fn commit(&mut self, commit: &Committed, seq: u64) -> Option<Phase> {
        let first_token = self.tokens.len();
        let round = self.round_mut(commit.round)?;
        let mut commit = commit.clone();
        keep_first(&mut commit.tokens, MOST_ROWS);
        let (number, tokens) = (commit.round, commit.tokens.clone());
        round.commit = Some(commit);
        round.first_token = first_token;
        round.ended_after = seq;
        let path: Vec<usize> = round.path().collect();
        let origin = |i: usize| (provenance(round, i), path.get(i).and_then(|index| round.departure(*index)));
        let origins: Vec<_> = (0..tokens.len()).map(origin).collect();
        for (piece, origin) in tokens.into_iter().zip(origins) {
            self.push(piece, origin, number);
        }
        if let Some(round) = self.rounds.last() {
            self.stats.add(round, self.is_thought_at(first_token));
        }
        Some(Phase::Between)
    }

    /// The shown moment lies within the last commit: no event has its numbers yet.
    pub(super) fn hold(&mut self, stats: LaneStats) {
        self.stats = stats;
        if let Some(round) = self.rounds.last_mut() {
            Arc::make_mut(round).is_partial = true;
        }
    }

    pub(super) fn push(&mut self, piece: Piece, (provenance, instead): (Provenance, Option<TokenId>), round: u32) {
        let position = self.prompt.len() + self.tokens.len();
        let is_thought = self.thought[0].read(&piece);
        self.tokens.push(Token { piece, provenance, round, position, instead, is_thought });
    }

    /// Settings that are in force from the next round on.
    pub(super) fn change(&mut self, settings: Settings) {
        let next = self.rounds.len();
        match self.changes.last_mut() {
            Some(last) if last.0 == next => last.1 = settings,
            _ => self.changes.push((next, settings)),
        }
    }

    /// The round of this answer with this number; `None` for 0, the number of tokens that no round committed.
    #[must_use]
    pub fn round(&self, number: u32) -> Option<&Round> {
        let at = self.rounds.partition_point(|round| round.number() < number);
        self.rounds.get(at).map(AsRef::as_ref).filter(|round| round.number() == number && number > 0)
    }

    /// Indices of the tokens that a lossless rule would not have committed after the same tokens; empty under such a
    /// rule.
    pub fn departures(&self) -> impl Iterator<Item = usize> {
        self.tokens.iter().enumerate().filter(|(_, token)| token.instead.is_some()).map(|(index, _)| index)
    }

    /// Whether every rule that judged drafts of this answer is lossless.
    #[must_use]
    pub fn is_lossless(&self) -> bool {
        let judged = self.rounds.iter().filter(|round| !round.drafts.is_empty());
        judged.filter_map(|round| round.verdict.as_ref()).all(|verdict| verdict.lossless)
    }

    /// Statistics of this answer, over its complete rounds.
    #[must_use]
    pub fn stats(&self) -> &LaneStats {
        &self.stats
    }

    /// The output as raw text, as a chat message carries it: without the token that ended it.
    /// Not for a terminal: see [`text::printable`].
    #[must_use]
    pub fn text(&self) -> String {
        let mut joiner = text::Joiner::default();
        let mut out: String = self.tokens.iter().map(|t| joiner.push(t.piece.text_bytes())).collect();
        out.push_str(&joiner.finish());
        out
    }
}

/// The answer of a lane that has not run, shared by all turns.
static EMPTY: LazyLock<Arc<Answer>> = LazyLock::new(Arc::default);

/// Answers of a turn in which no lane has run.
pub(super) fn no_answers() -> [Arc<Answer>; Lane::ALL.len()] {
    std::array::from_fn(|_| Arc::clone(&EMPTY))
}
