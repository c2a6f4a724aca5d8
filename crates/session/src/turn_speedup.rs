//! The speedups of a turn and of a session, from what was measured.

use draftscope_protocol::Lane;

use super::estimator::class;
use super::fold::Session;
use super::pass_costs::PassCosts;
use super::settings_span::SettingsSpan;
use super::span_figures::spans;
use super::speedup::{Speedup, WINDOW};
use super::stretches::{Local, Timed, stretches, whole_rounds};
use super::turn::Turn;
use super::turn_measured::Measured;

impl Measured {
    fn of(turn: &Turn) -> Self {
        let passes = PassCosts::of(turn);
        let trusted = |speedup: Speedup| speedup.trusted(turn.has_ceiling, passes.as_ref());
        Self { spans: spans(turn, trusted), passes, ..Self::default() }
    }
}

impl Turn {
    pub(super) fn measured(&self) -> &Measured {
        self.measured.get(|| Measured::of(self))
    }

    /// The spans of the answer in which the same settings were in force, in order; a round belongs to one of them.
    #[must_use]
    pub fn settings_spans(&self) -> &[SettingsSpan] {
        &self.measured().spans
    }

    /// Times as fast as plain decoding at the same moments, over the rounds under the newest settings; `None` while too
    /// little was measured.
    #[must_use]
    pub fn speedup(&self) -> Option<Speedup> {
        self.speedup_over(Lane::Plain)
    }

    /// The same against another lane.
    #[must_use]
    pub fn speedup_over(&self, lane: Lane) -> Option<Speedup> {
        match lane {
            Lane::Plain if self.has_other_plain => None,
            Lane::Speculative => None,
            Lane::Plain => self.settings_spans().last()?.speedup,
            Lane::Rival => self.settings_spans().last()?.over_rival,
        }
    }

    /// Whether it ran on the native CPU backend, where no pass over several rows costs less than one over one row.
    #[must_use]
    pub fn has_ceiling(&self) -> bool {
        self.has_ceiling
    }

    /// What passes cost in this turn; `None` while too little was measured.
    #[must_use]
    pub fn pass_costs(&self) -> Option<&PassCosts> {
        self.measured().passes.as_ref()
    }

    /// Tokens per second of a lane, of the run's own over the rounds under the newest settings. For another lane it is what that would have reached at the moments of the run's own
    /// rounds, so that the quotient of two speeds is the speedup; without a speedup, by its own clock.
    #[must_use]
    pub fn tokens_per_second(&self, lane: Lane) -> Option<f64> {
        let own = match self.settings_spans() {
            [.., _, newest] => newest.tokens_per_second,
            _ => self.answer(Lane::Speculative).stats().tokens_per_second(),
        };
        if lane == Lane::Speculative {
            return own;
        }
        match self.speedup_over(lane) {
            Some(speedup) => own.map(|own| own / speedup.value),
            None => self.answer(lane).stats().tokens_per_second(),
        }
    }

    /// Time of a lane's rounds in microseconds at that speed, so that tokens ÷ time is the speed also if rounds that
    /// follow a wait were not timed.
    #[must_use]
    pub fn decode_us(&self, lane: Lane) -> u64 {
        let stats = self.answer(lane).stats();
        match self.tokens_per_second(lane) {
            Some(speed) => (stats.committed() as f64 * 1e6 / speed).round() as u64,
            None => stats.decode_us(),
        }
    }

    /// The share of the turn's decode time that plain passes took, 0 to 1; `None` without plain passes.
    #[must_use]
    pub fn plain_share(&self) -> Option<f64> {
        let [plain, own] = [Lane::Plain, Lane::Speculative].map(|lane| self.answer(lane).stats().decode_us() as f64);
        (plain > 0.0).then(|| plain / (plain + own))
    }

    /// Speedup over plain decoding after each stretch, over the last rounds with at least [`WINDOW`] tokens, by
    /// [`Turn::round_clock`] in microseconds. Rounds that followed a wait have no part in it.
    #[must_use]
    pub fn speedup_series(&self) -> &[(u64, f64)] {
        self.measured().series.get(|| if self.has_other_plain { Vec::new() } else { self.series() })
    }

    fn series(&self) -> Vec<(u64, f64)> {
        let (own, plain) = (whole_rounds(self.answer(Lane::Speculative)), whole_rounds(self.answer(Lane::Plain)));
        let local = Local::of(stretches(&own, &plain), class, |_| 1.0);
        let ends = self.answer(Lane::Speculative).rounds.iter().map(|round| round.ended_after);
        let clocks: std::collections::BTreeMap<u64, u64> = ends.zip(self.round_clock().iter().copied()).collect();
        let (mut last, mut points) = (std::collections::VecDeque::new(), Vec::new());
        let (mut tokens, mut cost) = (0, 0.0);
        for stretch in &local.stretches {
            let unit = stretch.unit(|_| 1.0);
            let of = |timed: &Timed| (timed.round.committed().len() as u64, timed.us / unit);
            for (count, passes) in stretch.rounds.iter().map(of) {
                (tokens, cost) = (tokens + count, cost + passes);
                last.push_back((count, passes));
            }
            while let Some((count, passes)) = last.front().filter(|(count, _)| tokens - count >= WINDOW) {
                (tokens, cost) = (tokens - count, cost - passes);
                last.pop_front();
            }
            let end = stretch.rounds.last().and_then(|end| clocks.get(&end.round.ended_after));
            points.extend(end.filter(|_| cost > 0.0).map(|clock| (*clock, tokens as f64 / cost)));
        }
        points
    }
}

impl Session {
    /// Times as fast as plain decoding, over the turns that have a figure and ended with the settings of the newest
    /// answer: see [`Speedup::over_turns`].
    #[must_use]
    pub fn speedup(&self) -> Option<Speedup> {
        self.speedup_over(Lane::Plain)
    }

    /// The same against another lane.
    #[must_use]
    pub fn speedup_over(&self, lane: Lane) -> Option<Speedup> {
        let figure = |turn: &Turn| Some((turn.speedup_over(lane)?, turn.settings_spans().last()?.clone()));
        let figures: Vec<_> = self.turns().iter().filter_map(figure).collect();
        let newest = self.turns().iter().rev().find_map(|turn| turn.settings_spans().last())?.settings;
        let alike = figures.iter().filter(|(_, span)| span.settings.makes_rounds_like(&newest));
        Speedup::over_turns(alike.map(|(speedup, span)| (*speedup, span.decode_us)))
    }

    /// Tokens per second of a lane over all turns; for another lane, the run's own ÷ the speedup over it.
    #[must_use]
    pub fn tokens_per_second(&self, lane: Lane) -> Option<f64> {
        match self.speedup_over(lane) {
            Some(speedup) => self.stats(Lane::Speculative).tokens_per_second().map(|own| own / speedup.value),
            None => self.stats(lane).tokens_per_second(),
        }
    }
}
