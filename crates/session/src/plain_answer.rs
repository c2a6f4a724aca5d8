//! How much of a turn's plain answer exists, for a comparison to the last token.
//!
//! Invariant: a continued answer has no more tokens than can be compared: as many as the run's own answer, or as many
//! as the turn allowed if that ended by itself.

use std::sync::Arc;

use draftscope_protocol::{Lane, PlainAnswer, StopReason};

use super::fold::{LaneState, Session};
use super::{Phase, Turn};

impl Session {
    /// Whether a lane may continue its answer; the run's own never does.
    pub(super) fn go_on(&mut self, lane: Lane, turn: u32) {
        let begun = |turn: &Turn| !turn.answer(lane).tokens.is_empty();
        let index = self.turns.iter().rposition(|known| known.number == turn).filter(|at| begun(&self.turns[*at]));
        let Some(index) = index.filter(|_| lane != Lane::Speculative) else {
            return;
        };
        Arc::make_mut(&mut self.turns[index].answers[lane.index()]).finished = None;
        self.lanes[lane.index()] = LaneState { phase: Phase::Between, turn: Some(index), is_cold: true };
    }
}

impl Turn {
    /// Whether a lane has written all that can be compared: to its own end, or as much as the run's own answer, which
    /// was cut off.
    #[must_use]
    pub fn is_whole(&self, lane: Lane) -> bool {
        let (own, other) = (self.answer(Lane::Speculative), self.answer(lane));
        let is_cut = own.finished.is_some_and(|reason| reason != StopReason::Eos);
        let by_itself = [StopReason::Eos, StopReason::MaxTokens, StopReason::ContextFull];
        let has_ended = other.finished.is_some_and(|reason| by_itself.contains(&reason));
        has_ended || (is_cut && other.tokens.len() >= own.tokens.len())
    }

    /// The plain answer of a finished turn, if there is more of it to compare.
    #[must_use]
    pub fn unfinished_plain(&self) -> Option<PlainAnswer> {
        let (own, plain) = (self.answer(Lane::Speculative), self.answer(Lane::Plain));
        if own.tokens.is_empty() || own.finished.is_none() || self.is_whole(Lane::Plain) {
            return None;
        }
        let has_begun = !plain.tokens.is_empty();
        let (source, written) = if has_begun { (plain, plain.tokens.len()) } else { (own, own.kept) };
        let longest = match own.finished {
            Some(StopReason::Eos) => (own.kept + self.begun.max_tokens as usize).max(own.tokens.len()),
            _ => own.tokens.len(),
        };
        let more = u32::try_from(longest.saturating_sub(written)).unwrap_or(u32::MAX);
        let last = plain.rounds.last();
        let output = source.tokens[..written].iter().map(|token| token.piece.id);
        (more > 0).then(|| PlainAnswer {
            turn: self.number,
            tokens: source.prompt.iter().copied().chain(output).collect(),
            written: u32::try_from(written).unwrap_or(u32::MAX),
            has_begun,
            more,
            rounds: last.map_or(0, |round| round.number()),
            clock_us: last.map_or(0, |round| round.clock_us()),
            sampling: self.begun.sampling,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Script, first_turn};
    use super::*;
    use crate::fixture::fold;
    use draftscope_protocol::EventKind;

    #[test]
    fn a_sample_goes_on_from_its_last_token_to_the_length_of_the_answer() {
        let turn = fold(&first_turn().events).turns()[0].clone();
        let (own, plain) = (turn.answer(Lane::Speculative), turn.answer(Lane::Plain));
        let rest = turn.unfinished_plain().unwrap();
        assert!(rest.has_begun && !turn.is_whole(Lane::Plain));
        assert_eq!(rest.more as usize, own.tokens.len() - plain.tokens.len());
        assert_eq!(rest.tokens.len(), plain.prompt.len() + plain.tokens.len());
        assert_eq!(rest.tokens.last(), plain.tokens.last().map(|token| &token.piece.id));
        assert_eq!((rest.rounds, rest.clock_us), plain.rounds.last().map(|r| (r.number(), r.clock_us())).unwrap());
    }

    #[test]
    fn without_a_sample_the_prompt_is_where_it_begins_and_an_answer_under_way_waits() {
        let mut script = first_turn();
        script.events.retain(|event| event.lane == Lane::Speculative);
        let turn = fold(&script.events).turns()[0].clone();
        let rest = turn.unfinished_plain().unwrap();
        assert_eq!((rest.has_begun, rest.rounds, rest.clock_us), (false, 0, 0));
        assert_eq!(rest.tokens, turn.answer(Lane::Speculative).prompt.to_vec());
        assert_eq!(rest.more as usize, turn.answer(Lane::Speculative).tokens.len());
        script.events.pop();
        assert_eq!(fold(&script.events).turns()[0].unfinished_plain(), None, "the answer is not over");
    }

    #[test]
    fn a_lane_that_goes_on_ends_anew_and_then_nothing_is_left() {
        let mut script = first_turn();
        let turn = fold(&script.events).turns()[0].clone();
        let missing: Vec<String> = turn.answer(Lane::Speculative).tokens[turn.answer(Lane::Plain).tokens.len()..]
            .iter()
            .map(|token| String::from_utf8_lossy(token.piece.text_bytes()).into_owned())
            .collect();
        let go_on = |script: &mut Script, lane, turn| script.push(lane, EventKind::LaneContinued { turn });
        go_on(&mut script, Lane::Plain, 9);
        go_on(&mut script, Lane::Speculative, 1);
        assert!(!fold(&script.events).is_generating(), "there is no such turn, and the run's own lane never goes on");
        go_on(&mut script, Lane::Plain, 1);
        let session = fold(&script.events);
        assert!(session.is_generating());
        assert_eq!(session.turns()[0].answer(Lane::Plain).finished, None);
        missing.iter().for_each(|text| script.plain(text));
        script.finish(Lane::Plain, StopReason::MaxTokens);
        let turn = fold(&script.events).turns()[0].clone();
        assert_eq!(turn.unfinished_plain(), None);
        let agreement = turn.agreement().unwrap();
        assert!(agreement.is_final && agreement.divergence.is_none(), "{agreement:?}");
        assert_eq!(agreement.identical, turn.answer(Lane::Speculative).tokens.len());
    }
}
