//! Compares two recorded runs, token by token.
//!
//! Invariant: turns are paired by number and tokens by index; no alignment is guessed. What a side reports about a
//! token is the row that it was picked from, if the recording contains it.

use serde::Serialize;

use draftscope_protocol::{Candidate, Lane, Piece, Prediction, RunSummary};

use super::fate::Provenance;
use super::findings::NEAR_TIE;
use super::fold::Session;
use super::header_diff::{HeaderDifference, header_diff};
use super::turn::{Answer, Turn};

/// Two runs, compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diff {
    /// Header fields that differ: name, then both values.
    pub differs_in: Vec<HeaderDifference>,
    /// Turns that both have, in order.
    pub turns: Vec<TurnDiff>,
    /// Turns that only one of them has.
    pub unpaired_turns: usize,
    /// The speculative lanes in numbers, over all turns.
    pub runs: [RunSummary; 2],
    /// Tokens committed in rounds ÷ rounds.
    pub tokens_per_round: [Option<f64>; 2],
    /// Whether every rule that judged drafts is lossless.
    pub lossless: [bool; 2],
    /// Of each, the sentence on rejections that contradict the reported probabilities, if they do.
    #[serde(skip_serializing_if = "nothing")]
    pub contradictions: [Option<String>; 2],
    /// Tokens per second, second ÷ first.
    pub speed_ratio: Option<f64>,
}

fn nothing(contradictions: &[Option<String>; 2]) -> bool {
    contradictions.iter().all(Option::is_none)
}

/// One turn in both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TurnDiff {
    /// 1, 2, 3 …
    pub turn: u32,
    /// Whether both had the same prompt tokens.
    pub same_prompt: bool,
    /// Leading tokens that are equal.
    pub identical: usize,
    /// Length of each answer.
    pub tokens: [usize; 2],
    /// The first difference; `None` if one answer begins with the other, or they are the same.
    pub divergence: Option<FirstDifference>,
}

/// The first difference of two answers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FirstDifference {
    /// Index in both answers.
    pub index: usize,
    /// What each side reports.
    pub sides: [Side; 2],
    /// Whether a near tie explains the difference: one side's two best candidates were closer than [`NEAR_TIE`], the
    /// prompts are the same, both are greedy, both rules lossless.
    pub near_tie: bool,
}

/// One side of a difference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// The token it took.
    pub token: Piece,
    /// Its round; 0 for the first token.
    pub round: u32,
    /// The target's two best candidates there.
    pub top: Vec<Candidate>,
    /// Best minus second best.
    pub margin: Option<f32>,
    /// The target's probability of the token it took, if it is among the recorded candidates.
    pub prob: Option<f32>,
    /// Its provenance.
    #[serde(skip)]
    pub provenance: Provenance,
}

impl Diff {
    /// Compares the speculative lanes of two runs.
    #[must_use]
    pub fn of(a: &Session, b: &Session) -> Self {
        let other = |turn: &Turn| b.turns().iter().find(|other| other.number == turn.number);
        let pairs = a.turns().iter().filter_map(|turn| Some((turn, other(turn)?)));
        let turns: Vec<_> = pairs.map(|turns| TurnDiff::of((a, b), turns)).collect();
        let runs = [a, b].map(|session| session.stats(Lane::Speculative).summary());
        let speed = |run: &RunSummary| run.tokens_per_second;
        Self {
            differs_in: a.header().zip(b.header()).map_or(Vec::new(), |(a, b)| header_diff(a, b)),
            unpaired_turns: a.turns().len() + b.turns().len() - 2 * turns.len(),
            turns,
            tokens_per_round: [a, b].map(|session| session.stats(Lane::Speculative).mean_tokens_per_round()),
            lossless: [a, b].map(|s| s.turns().iter().all(|turn| turn.answer(Lane::Speculative).is_lossless())),
            contradictions: [a, b].map(|session| session.stats(Lane::Speculative).evidence().sentence()),
            speed_ratio: speed(&runs[1]).zip(speed(&runs[0])).map(|(b, a)| b / a),
            runs,
        }
    }

    /// Whether every paired answer has the same tokens, and every turn has a partner.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.unpaired_turns == 0 && self.turns.iter().all(TurnDiff::is_same)
    }
}

impl TurnDiff {
    fn of(sessions: (&Session, &Session), (a, b): (&Turn, &Turn)) -> Self {
        let answers = [a.answer(Lane::Speculative), b.answer(Lane::Speculative)];
        let pairs = answers[0].tokens.iter().zip(&answers[1].tokens);
        let identical = pairs.take_while(|(a, b)| a.piece.is_same(&b.piece)).count();
        let same_prompt = answers[0].prompt == answers[1].prompt;
        let is_greedy = is_greedy(sessions.0, answers[0]) && is_greedy(sessions.1, answers[1]);
        let can_tie = same_prompt && is_greedy && answers.iter().all(|answer| answer.is_lossless());
        Self {
            turn: a.number,
            same_prompt,
            identical,
            tokens: answers.map(|answer| answer.tokens.len()),
            divergence: FirstDifference::at(answers, identical, can_tie),
        }
    }

    /// Whether both answers are the same tokens.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.tokens == [self.identical; 2]
    }
}

impl FirstDifference {
    fn at(answers: [&Answer; 2], index: usize, can_tie: bool) -> Option<Self> {
        let sides = [Side::at(answers[0], index)?, Side::at(answers[1], index)?];
        let near_tie = can_tie && sides.iter().any(|side| side.margin.is_some_and(|margin| margin < NEAR_TIE));
        Some(Self { index, sides, near_tie })
    }
}

impl Side {
    /// What an answer reports about one of its tokens; `None` after its end.
    #[must_use]
    pub fn at(answer: &Answer, index: usize) -> Option<Self> {
        let token = answer.tokens.get(index)?;
        let row = row_of(answer, index);
        let top: Vec<Candidate> = row.map_or(Vec::new(), |row| row.top.iter().take(2).cloned().collect());
        let margin = (top.len() == 2).then(|| top[0].prob - top[1].prob);
        let prob = row.and_then(|row| row.find(token.piece.id)).map(|found| found.1);
        let provenance = token.provenance;
        Some(Self { token: token.piece.clone(), round: token.round, top, margin, prob, provenance })
    }
}

/// Whether every token was the most probable one.
fn is_greedy(session: &Session, answer: &Answer) -> bool {
    match answer.rounds.as_slice() {
        [] => session.settings().sampling.temperature <= 0.0,
        rounds => rounds.iter().all(|round| round.sampling.temperature <= 0.0),
    }
}

/// The row that a committed token was picked from: the one that judged it as a draft, or the target's own.
fn row_of(answer: &Answer, index: usize) -> Option<&Prediction> {
    let token = answer.tokens.get(index)?;
    if token.round == 0 {
        return Some(&answer.first_row);
    }
    let place = answer.rounds.partition_point(|round| round.number() < token.round);
    let round = answer.rounds.get(place).filter(|round| round.number() == token.round)?;
    let own = index.checked_sub(round.first_token)?;
    round.prediction(round.path().nth(own).or_else(|| round.next_index())?)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Script, first_turn, piece};
    use super::*;
    use crate::fixture::fold;
    use draftscope_protocol::{Committed, EventKind, Prefilled, Scored};

    #[test]
    fn a_run_is_the_same_as_itself() {
        let session = fold(&first_turn().events);
        let diff = Diff::of(&session, &session);
        assert!(diff.is_same() && diff.differs_in.is_empty() && diff.turns.len() == 1, "{diff:?}");
        assert_eq!(diff.speed_ratio, Some(1.0));
    }

    #[test]
    fn the_first_difference_shows_both_rows() {
        let mut b: Script = first_turn();
        for event in &mut b.events {
            if let EventKind::Committed(Committed { round: 3, tokens, .. }) = &mut event.kind {
                tokens[0] = piece(" an");
            }
        }
        let (a, b) = (fold(&first_turn().events), fold(&b.events));
        let diff = Diff::of(&a, &b);
        let difference = diff.turns[0].divergence.clone().unwrap();
        assert_eq!(difference.index, 6);
        assert_eq!((difference.sides[0].token.lossy(), difference.sides[1].token.lossy()), (" a".into(), " an".into()));
        assert_eq!(difference.sides[0].top[0].piece, piece(" a"));
        assert!((difference.sides[0].margin.unwrap() - (0.48 - 0.52 * 0.6)).abs() < 1e-6);
        assert!(!diff.is_same() && !difference.near_tie);
        assert_eq!(diff.tokens_per_round, [a.stats(Lane::Speculative).mean_tokens_per_round(); 2]);
        let empty = Diff::of(&a, &Session::new());
        assert_eq!((empty.unpaired_turns, empty.is_same()), (1, false));
    }

    #[test]
    fn only_alike_greedy_lossless_runs_part_by_a_tie() {
        let part = |change: &dyn Fn(&mut EventKind)| {
            let mut b = first_turn();
            for event in &mut b.events {
                match &mut event.kind {
                    EventKind::Committed(Committed { round: 3, tokens, .. }) => tokens[0] = piece(" an"),
                    EventKind::Scored(Scored { round: 3, rows, .. }) => {
                        rows.iter_mut().for_each(|row| row.top[1].prob = row.top[0].prob - 0.01);
                    }
                    _ => {}
                }
                change(&mut event.kind);
            }
            Diff::of(&fold(&first_turn().events), &fold(&b.events)).turns[0].divergence.clone().unwrap().near_tie
        };
        assert!(part(&|_| {}));
        assert!(!part(&|kind| {
            if let EventKind::Started { header } = kind {
                header.settings.sampling.temperature = 0.7;
            }
        }));
        assert!(!part(&|kind| {
            if let EventKind::Verified { verdict, .. } = kind {
                verdict.lossless = false;
            }
        }));
        assert!(!part(&|kind| {
            if let EventKind::Prefilled(Prefilled { prompt, .. }) = kind {
                prompt.push(piece("!"));
            }
        }));
    }
}
