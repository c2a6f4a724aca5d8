//! Rounds of the speculative lane by index.

use draftscope_protocol::Lane;

use super::Round;
use super::fold::Session;

/// A round of the speculative lane, by indices; `None` is the prompt's pass, which yielded the first token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RoundAt {
    /// Index of the turn.
    pub turn: usize,
    /// Index of the round in that turn's answer.
    pub round: Option<usize>,
}

/// A round by its indices.
#[must_use]
pub fn round_at(session: &Session, at: RoundAt) -> Option<&Round> {
    let answer = session.turns().get(at.turn)?.answer(Lane::Speculative);
    match at.round {
        Some(round) => answer.rounds.get(round).map(AsRef::as_ref),
        None => Some(&*answer.prefill).filter(|_| !answer.tokens.is_empty()),
    }
}

/// The newest round of the speculative lane; before the first of an answer, the prompt's pass.
#[must_use]
pub fn live_round(session: &Session) -> Option<RoundAt> {
    places(session).next_back()
}

/// Round and column of the newest output token of the speculative lane.
#[must_use]
pub fn newest_token(session: &Session) -> Option<(RoundAt, usize)> {
    let turn = session.turns().iter().rposition(|turn| !turn.answer(Lane::Speculative).tokens.is_empty())?;
    let answer = session.turns()[turn].answer(Lane::Speculative);
    let done = answer.rounds.iter().rposition(|round| !round.committed().is_empty());
    let at = RoundAt { turn, round: done };
    let round = round_at(session, at)?;
    Some((at, round.column_of(round.committed().len().checked_sub(1)?)))
}

/// Indices of all rounds of the speculative lane, oldest first.
pub fn rounds(session: &Session) -> impl DoubleEndedIterator<Item = RoundAt> {
    session.turns().iter().enumerate().flat_map(|(turn, t)| {
        let count = t.answer(Lane::Speculative).rounds.len();
        (0..count).map(move |round| RoundAt { turn, round: Some(round) })
    })
}

/// The same with the prompts' passes before them.
pub fn places(session: &Session) -> impl DoubleEndedIterator<Item = RoundAt> {
    session.turns().iter().enumerate().flat_map(|(turn, t)| {
        let answer = t.answer(Lane::Speculative);
        let first = (!answer.tokens.is_empty()).then_some(RoundAt { turn, round: None });
        first.into_iter().chain((0..answer.rounds.len()).map(move |round| RoundAt { turn, round: Some(round) }))
    })
}
