//! Spans of an answer in which the same settings were in force.
//!
//! Invariant: a figure of speed is that of one span: k, rule, drafter and sampling are not mixed.

use std::ops::Range;

use draftscope_protocol::{Lane, Outcome, Settings};

use super::estimator::{between, over_undrafted};
use super::speedup::Speedup;
use super::stretches::{Timed, whole_rounds};
use super::{Answer, Turn};

/// Rounds of an answer under the same settings.
#[derive(Clone, Debug, PartialEq)]
pub struct SettingsSpan {
    /// The settings.
    pub settings: Settings,
    /// Indices in [`Answer::rounds`]; never empty.
    pub rounds: Range<usize>,
    /// Tokens that a round wrote on average; `None` before one is timed.
    pub tokens_per_round: Option<f64>,
    /// Accepted drafts ÷ drafts that the target judged, 0 to 1; `None` before one was judged.
    pub acceptance: Option<f64>,
    /// Tokens per second of its rounds; `None` before one is timed.
    pub tokens_per_second: Option<f64>,
    /// Time of its rounds, in microseconds.
    pub decode_us: u64,
    /// Times as fast as plain decoding beside these rounds.
    pub speedup: Option<Speedup>,
    /// The same against the rival.
    pub(super) over_rival: Option<Speedup>,
}

/// The spans of a turn. `trusted` says of a figure whether it is possible.
pub(super) fn spans(turn: &Turn, trusted: impl Fn(Speedup) -> Speedup) -> Vec<SettingsSpan> {
    let own = turn.answer(Lane::Speculative);
    ranges(own, &turn.begun).map(|(rounds, settings)| Lanes { turn, own, rounds }.measure(settings, &trusted)).collect()
}

/// The rounds under each of the settings.
fn ranges(own: &Answer, begun: &Settings) -> impl Iterator<Item = (Range<usize>, Settings)> {
    let starts = std::iter::once((0, *begun)).chain(own.changes.iter().copied());
    let ends = own.changes.iter().map(|(at, _)| *at).chain([own.rounds.len()]);
    let spans: Vec<_> = starts.zip(ends).map(|((start, settings), end)| (start..end, settings)).collect();
    spans.into_iter().filter(|(rounds, _)| !rounds.is_empty())
}

/// A span, and the lanes beside it.
struct Lanes<'a> {
    turn: &'a Turn,
    own: &'a Answer,
    rounds: Range<usize>,
}

impl Lanes<'_> {
    fn measure(self, settings: Settings, trusted: impl Fn(Speedup) -> Speedup) -> SettingsSpan {
        let mut own = whole_rounds(self.own);
        let numbers = self.numbers();
        own.retain(|timed| numbers.contains(&timed.round.number()));
        let us: f64 = own.iter().map(|timed| timed.us).sum();
        let tokens: usize = own.iter().map(|timed| timed.round.committed().len()).sum();
        let plain = self.turn.answer(Lane::Plain);
        let over_rival = between(&own, &self.beside(self.turn.answer(Lane::Rival)));
        let rounds = own.len();
        let speedup = match self.turn.is_attached() && plain.tokens.is_empty() {
            true if self.own.stats().is_uncounted => None, // a round without known drafts may have had some
            true => over_undrafted(own),
            false => between(&own, &self.beside(plain)),
        };
        SettingsSpan {
            settings,
            rounds: self.rounds.clone(),
            tokens_per_round: (rounds > 0).then(|| tokens as f64 / rounds as f64),
            acceptance: self.acceptance(),
            tokens_per_second: (us > 0.0).then(|| tokens as f64 * 1e6 / us),
            decode_us: us as u64,
            speedup: speedup.map(trusted),
            over_rival,
        }
    }

    /// Accepted ÷ judged drafts of its rounds.
    fn acceptance(&self) -> Option<f64> {
        let rounds = &self.own.rounds[self.rounds.clone()];
        let outcomes = rounds.iter().flat_map(|round| (0..round.drafts.len()).filter_map(|index| round.outcome(index)));
        let judged: Vec<_> = outcomes.filter(|outcome| *outcome != Outcome::NotReached).collect();
        let accepted = judged.iter().filter(|outcome| **outcome == Outcome::Accepted).count();
        (!judged.is_empty()).then(|| accepted as f64 / judged.len() as f64)
    }

    /// The numbers of its rounds.
    fn numbers(&self) -> Range<u32> {
        let rounds = &self.own.rounds[self.rounds.clone()];
        let [first, last] = [rounds.first(), rounds.last()].map(|round| round.map_or(0, |round| round.number()));
        first..last.saturating_add(1)
    }

    /// The passes of another lane that ran while the span lasted; all of them if there is no other span.
    fn beside<'a>(&self, other: &'a Answer) -> Vec<Timed<'a>> {
        let mut passes = whole_rounds(other);
        let before = self.rounds.start.checked_sub(1).map(|at| self.own.rounds[at].ended_after);
        let after = self.own.rounds.get(self.rounds.end).map(|_| self.own.rounds[self.rounds.end - 1].ended_after);
        passes.retain(|timed| {
            let at = timed.round.ended_after;
            before.is_none_or(|before| at > before) && after.is_none_or(|after| at <= after)
        });
        passes
    }
}

impl Answer {
    /// Settings that are in force from the next round on.
    pub(super) fn change(&mut self, settings: Settings) {
        let next = self.rounds.len();
        match self.changes.last_mut() {
            Some(last) if last.0 == next => last.1 = settings,
            _ => self.changes.push((next, settings)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Script, fold};
    use draftscope_protocol::{DraftLenMode, EventKind};

    /// Rounds of one draft that is rejected, between plain passes; from the 21st on, with two that are accepted.
    fn changed(settings: Settings) -> crate::Session {
        let mut script = Script::prompted("hi", "Hello");
        for round in 0..40 {
            if round == 20 {
                script.push(Lane::Speculative, EventKind::SettingsChanged { settings });
            }
            match round {
                0..20 => script.round(&[(" x", 0.5)], &[(" a", 0.9), (" b", 0.9)]),
                _ => script.round(&[(" a", 0.5), (" b", 0.5)], &[(" a", 0.9), (" b", 0.9), (" c", 0.9)]),
            }
            script.plain(" a");
        }
        fold(&script.events)
    }

    #[test]
    fn a_speedup_is_that_of_the_settings_in_force() {
        let now = Settings { draft_len: 2, ..crate::fixture::header().settings };
        let session = changed(now);
        let turn = &session.turns()[0];
        let [before, after] = turn.settings_spans() else { panic!("{:?}", turn.settings_spans()) };
        assert_eq!((before.rounds.clone(), after.rounds.clone()), (0..20, 20..40));
        assert_eq!((before.settings.draft_len, after.settings), (3, now));
        assert_eq!((before.tokens_per_round, after.tokens_per_round), (Some(1.0), Some(3.0)));
        assert_eq!((before.acceptance, after.acceptance), (Some(0.0), Some(1.0)));
        let [slow, fast] = [before, after].map(|span| span.speedup.unwrap().value);
        assert!(slow < 1.0 && fast > 2.0, "{slow} {fast}");
        assert_eq!((turn.speedup(), session.speedup().map(|of| of.value)), (after.speedup, Some(fast)));
        let own = turn.tokens_per_second(Lane::Speculative).unwrap();
        assert!((own / turn.tokens_per_second(Lane::Plain).unwrap() - fast).abs() < 1e-9, "speeds go with the speedup");
    }

    #[test]
    fn what_shapes_no_round_does_not_split_an_answer() {
        let same = Settings { max_tokens: 9, ..crate::fixture::header().settings };
        assert_eq!(changed(same).turns()[0].settings_spans().len(), 1);
        let chosen = |draft_len| Settings { draft_len, draft_len_mode: DraftLenMode::Auto, ..Settings::default() };
        assert!(chosen(2).makes_rounds_like(&chosen(5)) && !chosen(3).makes_rounds_like(&Settings::default()));
    }

    #[test]
    fn of_several_turns_those_with_the_newest_settings_count() {
        let mut script = Script::started();
        for turn in 0..3 {
            script.prompt("hi", "Hello");
            for _ in 0..12 {
                match turn {
                    0 => script.round(&[(" x", 0.5)], &[(" a", 0.9), (" b", 0.9)]),
                    _ => script.round(&[(" a", 0.5)], &[(" a", 0.9), (" b", 0.9)]),
                }
                script.plain(" a");
            }
            if turn == 0 {
                script.finish(Lane::Speculative, draftscope_protocol::StopReason::Eos);
                let settings = Settings { draft_len: 1, ..crate::fixture::header().settings };
                script.push(Lane::Speculative, EventKind::SettingsChanged { settings });
            }
        }
        let session = fold(&script.events);
        let of = |turn: usize| session.turns()[turn].speedup().unwrap().value;
        let mean = session.speedup().unwrap().value;
        assert!(of(0) < 1.0 && (mean - of(1).midpoint(of(2))).abs() < 0.05, "{} {} {} {mean}", of(0), of(1), of(2));
    }
}
