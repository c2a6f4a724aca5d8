//! The figures of each span, from its rounds and the passes of the lanes beside it.

use std::ops::Range;

use draftscope_protocol::{Lane, Outcome, Settings};

use super::estimator::{between, over_undrafted};
use super::settings_span::SettingsSpan;
use super::speedup::Speedup;
use super::stretches::{Timed, whole_rounds};
use super::turn::{Answer, Turn};

/// The spans of a turn. `trusted` says of a figure whether it is possible.
pub(super) fn spans(turn: &Turn, trusted: impl Fn(Speedup) -> Speedup) -> Vec<SettingsSpan> {
    let own = turn.answer(Lane::Speculative);
    ranges(own, &turn.begun).map(|(rounds, settings)| Lanes { turn, own, rounds }.measure(settings, &trusted)).collect()
}

/// The rounds under each of the settings.
pub(super) fn ranges(own: &Answer, begun: &Settings) -> impl Iterator<Item = (Range<usize>, Settings)> {
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
