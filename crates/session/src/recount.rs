//! What an attached engine adds to an answer afterwards: what its rounds drafted, and predictions that were asked for.
//!
//! Invariant: neither changes a token. Counts that contradict the answer change nothing at all.

use std::sync::Arc;

use draftscope_protocol::{
    Committed, CountedRound, Drafted, Piece, Prediction, RoundStarted, Scored, TokenId, Verification, VerifyRule,
};

use super::fold::Session;
use super::round::provenance;
use super::{Answer, LaneStats, Phase, Round};

/// A committed token, and what is known of it.
struct Known {
    piece: Piece,
    row: Option<Prediction>,
    prob: Option<f32>,
    /// Index of the round that committed it.
    round: usize,
}

fn unreported() -> Prediction {
    Prediction { top: Vec::new(), tail: 1.0 }
}

impl Answer {
    /// The engine reports at the end, or never, what its rounds drafted: until then no figure counts drafts.
    pub(super) fn leave_uncounted(&mut self) {
        self.stats = std::mem::take(&mut self.stats).uncounted();
    }

    /// Before rounds are counted anew.
    fn restart_stats(&mut self) {
        self.stats = LaneStats::prefilled(self.prefill_us);
    }

    /// Adds a complete round with its tokens.
    fn add_counted(&mut self, round: Round) {
        let first = self.tokens.len();
        for (index, piece) in round.committed().iter().enumerate() {
            self.push(piece.clone(), (provenance(&round, index), None), round.number());
        }
        self.stats.add(&round, self.is_thought_at(first));
        self.rounds.push(Arc::new(round));
    }

    /// Divides the answer into these rounds; returns what the lane does next.
    pub(super) fn recount(&mut self, counted: &[CountedRound]) -> Option<Phase> {
        let known = self.known();
        let first = self.rounds.first().filter(|_| fits(counted, known.len()))?;
        let (number, base, start) = (first.number(), first.base_len(), first.first_token);
        let old = std::mem::take(&mut self.rounds);
        self.tokens.truncate(start);
        self.rescan_thought();
        self.restart_stats();
        let mut at = 0;
        let mut clock_before_us = 0;
        for (index, counts) in counted.iter().enumerate() {
            let (index, place) = (u32::try_from(index).unwrap_or(u32::MAX), u32::try_from(at).unwrap_or(u32::MAX));
            let own = &known[at..at + usize::from(counts.committed)];
            let number = number.saturating_add(index);
            // what a plugin reported of a round stays
            let place_of = old.partition_point(|round| round.first_token < start + at);
            let same = old.get(place_of).filter(|round| round.first_token == start + at && has_counts(round, counts));
            if let Some(same) = same {
                let mut round = Round { clock_before_us, ..(**same).clone() };
                round.started.round = number;
                clock_before_us = round.clock_us();
                at += own.len();
                self.add_counted(round);
                continue;
            }
            let from = own.last().map_or(&old[0], |last| &old[last.round]);
            let round = Round {
                started: RoundStarted {
                    round: number,
                    base_len: base.saturating_add(place),
                    draft_len: counts.drafted,
                },
                turn: from.turn,
                rule: from.rule,
                sampling: from.sampling,
                leniency: from.leniency,
                drafts: drafts(number, counts, own),
                scored: rows(counts, own).map(|rows| Scored { round: number, rows, ..Scored::default() }),
                verdict: Some(verdict(counts, own)),
                commit: Some(Committed {
                    round: number,
                    tokens: own.iter().map(|token| token.piece.clone()).collect(),
                    clock_us: from.clock_us(),
                    ..Committed::default()
                }),
                first_token: start + at,
                clock_before_us,
                ended_after: from.ended_after,
                follows_wait: from.follows_wait || counts.merged,
                ..Round::default()
            };
            clock_before_us = from.clock_us();
            at += own.len();
            self.add_counted(round);
        }
        Some(Phase::Between)
    }

    fn known(&self) -> Vec<Known> {
        let rounds = self.rounds.iter().enumerate().filter(|(_, round)| round.is_complete());
        rounds
            .flat_map(|(index, round)| {
                round.committed().iter().enumerate().map(move |(at, piece)| Known {
                    piece: piece.clone(),
                    row: round.rows().get(at).filter(|row| !row.top.is_empty()).cloned(),
                    prob: round.judgement(at).and_then(|judgement| judgement.p),
                    round: index,
                })
            })
            .collect()
    }

    /// Takes the prediction at a token of the answer, which was asked for when the answer was over.
    pub(super) fn set_row(&mut self, index: usize, row: Prediction) {
        let index = self.kept + index;
        if index == self.kept {
            self.first_row = row.clone();
            let prefill = Arc::make_mut(&mut self.prefill);
            (*prefill.rows_mut(), prefill.is_asked) = (vec![row], true);
            return;
        }
        let after = self.rounds.partition_point(|round| round.first_token <= index);
        let Some(round) = after.checked_sub(1).and_then(|at| self.rounds.get_mut(at)) else { return };
        let place = index - round.first_token;
        if !round.is_complete() || round.is_tree() || place >= round.committed().len() {
            return;
        }
        let round = Arc::make_mut(round);
        let width = round.drafts.len() + 1;
        let rows = round.rows_mut();
        rows.resize_with(rows.len().max(width), unreported);
        if let Some(slot) = rows.get_mut(place) {
            (*slot, round.is_asked) = (row, true);
        }
    }
}

/// Whether rounds with these counts hold so many tokens.
fn fits(counted: &[CountedRound], tokens: usize) -> bool {
    let sound = |round: &CountedRound| {
        round.accepted <= round.drafted && (1..=u16::from(round.accepted) + 1).contains(&round.committed)
    };
    counted.iter().all(sound) && counted.iter().map(|round| usize::from(round.committed)).sum::<usize>() == tokens
}

/// Whether a round has more than counts, and just these.
fn has_counts(round: &Round, counts: &CountedRound) -> bool {
    let is_detailed =
        !counts.merged && round.drafts.iter().all(|draft| !draft.token.id.is_unknown()) && !round.rows().is_empty();
    is_detailed
        && round.rows().len() == round.drafts.len() + 1
        && round.drafts.len() == usize::from(counts.drafted)
        && round.accepted() == usize::from(counts.accepted)
        && round.committed().len() == usize::from(counts.committed)
}

fn drafts(round: u32, counts: &CountedRound, own: &[Known]) -> Vec<Drafted> {
    let accepted = usize::from(counts.accepted);
    let piece = |index: usize| own.get(index).filter(|_| index < accepted).map(|token| token.piece.clone());
    let draft = |index: u8| Drafted {
        round,
        index,
        token: piece(index.into()).unwrap_or_else(Piece::unknown),
        top: unreported(),
        ..Drafted::default()
    };
    (0..counts.drafted).map(draft).collect()
}

/// The rows of a round; none if none of them is known.
fn rows(counts: &CountedRound, own: &[Known]) -> Option<Vec<Prediction>> {
    own.iter().find(|token| token.row.is_some())?;
    let rows = own.iter().map(|token| token.row.clone().unwrap_or_else(unreported));
    Some(rows.chain(std::iter::repeat_with(unreported)).take(usize::from(counts.drafted) + 1).collect())
}

fn verdict(counts: &CountedRound, own: &[Known]) -> Verification {
    let (drafted, accepted) = (usize::from(counts.drafted), usize::from(counts.accepted));
    let next = own.get(accepted).map_or(TokenId::UNKNOWN, |token| token.piece.id);
    Verification::counted(drafted, accepted, next, |index| own.get(index).and_then(|token| token.prob))
}

impl Session {
    /// Whether it is known how drafts are judged: an attached engine reports its rule through a plugin only.
    #[must_use]
    pub fn reports_rule(&self) -> bool {
        self.engine().is_none() || self.settings.rule != VerifyRule::default()
    }
}

impl LaneStats {
    /// Whether it is known what the rounds drafted. Of several answers, whether it is known of one of them.
    #[must_use]
    pub fn counts_drafts(&self) -> bool {
        !self.is_uncounted || self.rounds_with_drafts() > 0
    }

    /// Of an answer whose drafts are not counted before the engine reports them.
    pub(super) fn uncounted(mut self) -> Self {
        self.is_uncounted = true;
        self
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture::header;
    use crate::fold::Session;
    use draftscope_protocol::{
        Candidate, Committed, CountedRound, DraftCounts, EngineInfo, Event, EventKind, Lane, Piece, Prediction,
        Prefilled, RoundStarted, Scored, TokenId,
    };

    fn event(kind: EventKind) -> Event {
        Event { seq: 0, at_us: 0, lane: Lane::Speculative, kind }
    }

    fn piece(id: u32) -> Piece {
        Piece::new(TokenId(id), format!(" {id}"))
    }

    fn row(id: u32) -> Prediction {
        Prediction { top: vec![Candidate { piece: piece(id), prob: 0.75 }], tail: 0.25 }
    }

    /// An answer of a first token and rounds of 3 and 2 tokens, as an attached engine sends it.
    fn session() -> Session {
        let mut session = Session::new();
        let engine = EngineInfo { draft_counts: DraftCounts::AtEnd, ..EngineInfo::default() };
        let header = Box::new(draftscope_protocol::Header { engine: Some(engine), ..header() });
        let mut kinds = vec![
            EventKind::Started { header },
            EventKind::Prompted { turn: 1, text: "x".into(), branch: None },
            EventKind::Prefilled(Prefilled {
                turn: 1,
                prompt: vec![piece(1)],
                first: piece(2),
                row: row(2),
                took_us: 5,
                ..Prefilled::default()
            }),
        ];
        for (round, ids, clock_us) in [(1, 3..6, 10), (2, 6..8, 20)] {
            let rows = ids.clone().map(row).collect();
            kinds.push(EventKind::RoundStarted(RoundStarted { round, ..RoundStarted::default() }));
            kinds.push(EventKind::Scored(Scored { round, rows, ..Scored::default() }));
            kinds.push(EventKind::Committed(Committed {
                round,
                tokens: ids.map(piece).collect(),
                clock_us,
                ..Committed::default()
            }));
        }
        kinds.into_iter().for_each(|kind| session.apply(&event(kind)));
        session
    }

    fn counted(drafted: u8, accepted: u8, committed: u16, merged: bool) -> CountedRound {
        CountedRound { drafted, accepted, committed, merged }
    }

    #[test]
    fn rounds_are_divided_anew_and_no_token_changes() {
        let mut session = session();
        let before = session.turn().unwrap().answer(Lane::Speculative).clone();
        assert_eq!((before.stats().acceptance_rate(), before.stats().drafted()), (None, 0), "not reported yet");
        let rounds = vec![counted(4, 1, 2, true), counted(0, 0, 1, true), counted(4, 1, 2, false)];
        session.apply(&event(EventKind::Recounted { rounds }));
        let answer = session.turn().unwrap().answer(Lane::Speculative);
        let ids = |answer: &crate::Answer| answer.tokens.iter().map(|t| t.piece.id).collect::<Vec<_>>();
        assert_eq!((ids(answer), answer.text()), (ids(&before), before.text()));
        let stats = answer.stats();
        assert_eq!((stats.rounds(), stats.drafted(), stats.accepted(), stats.tested()), (3, 8, 2, 4));
        assert_eq!((stats.timed_rounds(), stats.acceptance_rate()), (1, Some(0.25)));
        let numbers: Vec<_> = answer.rounds.iter().map(|r| (r.number(), r.first_token, r.committed().len())).collect();
        assert_eq!(numbers, [(1, 1, 2), (2, 3, 1), (3, 4, 2)]);
        let first = &answer.rounds[0];
        assert_eq!(first.prediction(1).unwrap().best().unwrap().piece.id, TokenId(4));
        assert!(first.drafts[1].token.id.is_unknown() && first.prediction(2).unwrap().top.is_empty());
    }

    #[test]
    fn counts_that_contradict_the_answer_change_nothing() {
        let whole = session();
        for rounds in [
            vec![counted(4, 4, 5, false), counted(0, 0, 1, false)],
            vec![counted(1, 2, 3, false), counted(1, 1, 2, false)],
            vec![counted(1, 1, 5, false)],
            vec![counted(0, 0, 0, false)],
            vec![],
        ] {
            let mut session = session();
            session.apply(&event(EventKind::Recounted { rounds }));
            assert_eq!(session.turns(), whole.turns());
        }
    }

    #[test]
    fn predictions_that_were_asked_for_stand_at_their_token() {
        let mut session = session();
        for (index, id) in [(0, 90), (2, 91), (5, 92), (6, 93), (900, 94)] {
            session.apply(&event(EventKind::RowAsked { turn: 1, index, row: row(id) }));
        }
        session.apply(&event(EventKind::RowAsked { turn: 7, index: 0, row: row(95) }));
        let answer = session.turn().unwrap().answer(Lane::Speculative);
        let best = |row: &Prediction| row.best().unwrap().piece.id.0;
        assert_eq!((best(&answer.first_row), best(&answer.prefill.rows()[0])), (90, 90));
        assert_eq!(best(answer.rounds[1].prediction(0).unwrap()), 6, "as it was");
        assert_eq!(best(&answer.rounds[0].rows()[1]), 91);
        assert_eq!(best(&answer.rounds[1].rows()[1]), 92);
        assert!(answer.prefill.is_asked && answer.rounds.iter().all(|round| round.is_asked));
    }
}
