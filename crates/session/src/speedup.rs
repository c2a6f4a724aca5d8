//! How much faster a turn was than another lane, measured on a machine that may do other work, too.
//!
//! Each [stretch](super::stretches) of a turn compares rounds with the other lane's passes that ran nearest in time:
//! what its rounds cost in such passes ÷ what rounds like them cost in the whole turn. The turn's round cost is the
//! geometric Hodges–Lehmann mean over stretches ([`super::robust`]), and `speedup = tokens per round ÷ round cost`,
//! each relative to the other lane's. Tokens are counted, so the interval is that of the time alone. Invariant: without
//! stretches there is no speedup, never a made-up one.

use std::cmp::Ordering;
use std::fmt;

use serde::Serialize;

use draftscope_protocol::Lane;

use super::memo::Memo;
use super::pass_costs::PassCosts;
use super::robust::{Interval, mean_ratio, median};
use super::stretches::{Local, Timed, stretches, whole_rounds};
use super::{Answer, Session, Turn};

/// Tokens over which a point of a curve of speed or speedup is taken.
pub const WINDOW: u64 = 16;

/// Shown with a figure that is impossible.
pub const DISTURBED: &str = "Disturbed: here no pass over several rows costs less than one row, so other work slowed some \
                             passes and not those beside them. Pause that work and send the prompt again.";

/// Shown with one that exceeds tokens per round on a device where a wider pass can be cheaper.
const REMARKABLE: &str =
    "Passes over several rows cost less than passes over one row here, which is possible on this device.";

/// Said of one whose plain speed was not measured beside it.
const FROM_UNDRAFTED: &str =
    "Plain speed is that of this answer's own rounds without drafts: no server decodes plainly beside it.";

/// Whether a figure is plausible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// It is possible.
    #[default]
    Plausible,
    /// A wider pass cost less than one row: possible on this device.
    Remarkable,
    /// The same where it is impossible: other work slowed some passes and not their neighbours.
    Disturbed,
}

/// A ratio of speeds with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speedup {
    /// Times as fast as the other lane.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Tokens per round, which on a CPU no speedup over plain decoding exceeds.
    pub tokens_per_round: f64,
    /// Whether it is plausible.
    pub trust: Trust,
    /// Whether plain speed is that of the answer's own rounds without drafts, since nothing was decoded beside it.
    pub from_undrafted: bool,
}

/// `2.08× ±0.06`; both parts follow from the value and its farther end.
impl fmt::Display for Speedup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2}× ±{:.2}", self.value, self.margin())
    }
}

/// A speedup in JSON: `speedup`, the ends of its interval, and `disturbed`. Without a speedup it is null.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figure {
    /// Times as fast; null while it is being measured.
    pub speedup: Option<f64>,
    /// Lower end of the 95 % interval.
    pub speedup_low: Option<f64>,
    /// Upper end.
    pub speedup_high: Option<f64>,
    /// Whether the figure is impossible because other work on the machine disturbed it.
    pub disturbed: bool,
}

impl From<Option<Speedup>> for Figure {
    fn from(speedup: Option<Speedup>) -> Self {
        Self {
            speedup: speedup.map(|speedup| speedup.value),
            speedup_low: speedup.map(|speedup| speedup.low),
            speedup_high: speedup.map(|speedup| speedup.high),
            disturbed: speedup.is_some_and(|speedup| speedup.is_disturbed()),
        }
    }
}

impl Speedup {
    /// The larger distance from the value to an end, at least 0.01.
    #[must_use]
    pub fn margin(&self) -> f64 {
        (self.high - self.value).max(self.value - self.low).max(0.01)
    }

    /// Whether it is impossible.
    #[must_use]
    pub fn is_disturbed(&self) -> bool {
        self.trust == Trust::Disturbed
    }

    /// Of several turns: what plain decoding would have taken for each turn's tokens, by that turn's own measure, ÷
    /// what the rounds took. That is the mean of the turns weighted by the time of their rounds, so it lies among them.
    /// The turns' errors are independent: their squares add up (JCGM 100:2008, 5.1.2).
    #[must_use]
    pub fn over_turns(turns: impl IntoIterator<Item = (Self, u64)>) -> Option<Self> {
        let turns: Vec<(Self, f64)> = turns.into_iter().map(|(of, us)| (of, us as f64)).collect();
        let whole: f64 = turns.iter().map(|(_, us)| us).sum();
        let mean = |of: fn(&Self) -> f64| turns.iter().map(|(turn, us)| of(turn) * us).sum::<f64>() / whole;
        let error = |of: fn(&Self) -> f64| {
            let squares = turns.iter().map(|(turn, us)| (of(turn) * us / whole).powi(2));
            squares.sum::<f64>().sqrt()
        };
        (whole > 0.0).then(|| {
            let value = mean(|turn| turn.value);
            Self {
                value,
                low: value - error(|turn| turn.value - turn.low),
                high: value + error(|turn| turn.high - turn.value),
                tokens_per_round: mean(|turn| turn.tokens_per_round),
                trust: turns.iter().map(|(turn, _)| turn.trust).max().unwrap_or_default(),
                from_undrafted: turns.iter().any(|(turn, _)| turn.from_undrafted),
            }
        })
    }

    /// The same of the other lane over this one.
    #[must_use]
    pub fn inverse(&self) -> Self {
        Self { value: 1.0 / self.value, low: 1.0 / self.high, high: 1.0 / self.low, ..*self }
    }

    /// Whether it is more than 1, less, or undecided: the interval decides.
    #[must_use]
    pub fn against_one(&self) -> Ordering {
        match (self.low > 1.0, self.high < 1.0) {
            (true, _) => Ordering::Greater,
            (_, true) => Ordering::Less,
            _ => Ordering::Equal,
        }
    }

    /// Why it is impossible and what to do, or that it is remarkable; `None` for a plausible one.
    #[must_use]
    pub fn note(&self) -> Option<&'static str> {
        match self.trust {
            Trust::Plausible => self.from_undrafted.then_some(FROM_UNDRAFTED),
            Trust::Remarkable => Some(REMARKABLE),
            Trust::Disturbed => Some(DISTURBED),
        }
    }

    fn trusted(mut self, has_ceiling: bool, passes: Option<&PassCosts>) -> Self {
        let wide = passes.is_some_and(|passes| passes.widths.iter().any(super::PassCost::is_below_one_row));
        self.trust = match self.low > self.tokens_per_round || wide {
            false => Trust::Plausible,
            true if has_ceiling => Trust::Disturbed,
            true => Trust::Remarkable,
        };
        self
    }
}

/// Speedups of a turn, computed once.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Measured {
    /// Over plain decoding.
    over_plain: Option<Speedup>,
    /// Over the rival.
    over_rival: Option<Speedup>,
    passes: Option<PassCosts>,
    /// Speedup over time; computed for one page only.
    series: Memo<Vec<(u64, f64)>>,
}

impl Measured {
    fn of(turn: &Turn) -> Self {
        let own = turn.answer(Lane::Speculative);
        let passes = PassCosts::of(turn);
        let plain = turn.answer(Lane::Plain);
        let over_plain = match turn.is_attached && plain.tokens.is_empty() {
            true => over_undrafted(own),
            false => estimate(own, plain),
        };
        Self {
            over_plain: over_plain.map(|speedup| speedup.trusted(turn.has_ceiling, passes.as_ref())),
            over_rival: estimate(own, turn.answer(Lane::Rival)),
            passes,
            series: Memo::default(),
        }
    }
}

impl Turn {
    fn measured(&self) -> &Measured {
        self.measured.get(|| Measured::of(self))
    }

    /// Times as fast as plain decoding at the same moments; `None` while too little was measured.
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
            Lane::Plain => self.measured().over_plain,
            Lane::Rival => self.measured().over_rival,
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

    /// Tokens per second of a lane. For another lane it is what that would have reached at the moments of the run's own
    /// rounds, so that the quotient of two speeds is the speedup; without a speedup, by its own clock.
    #[must_use]
    pub fn tokens_per_second(&self, lane: Lane) -> Option<f64> {
        let own = self.answer(Lane::Speculative).stats().tokens_per_second();
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

    /// Speedup over plain decoding after each stretch, over the last rounds with at least [`WINDOW`] tokens, by the
    /// time in microseconds of the rounds so far, without those that follow a wait.
    #[must_use]
    pub fn speedup_series(&self) -> &[(u64, f64)] {
        self.measured().series.get(|| if self.has_other_plain { Vec::new() } else { self.series() })
    }

    fn series(&self) -> Vec<(u64, f64)> {
        let (own, plain) = (whole_rounds(self.answer(Lane::Speculative)), whole_rounds(self.answer(Lane::Plain)));
        let local = Local::of(stretches(&own, &plain), class, |_| 1.0);
        let mut clock = 0.0;
        let mut clock_after = |timed: &Timed| {
            clock += timed.us;
            (timed.round.ended_after, clock as u64)
        };
        let clocks: std::collections::BTreeMap<u64, u64> = own.iter().map(&mut clock_after).collect();
        let (mut last, mut points) = (std::collections::VecDeque::new(), Vec::new());
        let (mut tokens, mut cost) = (0, 0.0);
        for stretch in &local.stretches {
            let unit = stretch.unit(|_| 1.0);
            let of = |timed: &Timed| (timed.round.committed.len() as u64, timed.us / unit);
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
    /// Times as fast as plain decoding, over the turns that have a figure: see [`Speedup::over_turns`].
    #[must_use]
    pub fn speedup(&self) -> Option<Speedup> {
        self.speedup_over(Lane::Plain)
    }

    /// The same against another lane.
    #[must_use]
    pub fn speedup_over(&self, lane: Lane) -> Option<Speedup> {
        let own_us = |turn: &Turn| turn.answer(Lane::Speculative).stats().decode_us();
        Speedup::over_turns(self.turns().iter().filter_map(|turn| Some((turn.speedup_over(lane)?, own_us(turn)))))
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

/// Identifies rounds that do the same work: rows of the pass, and whether one more draft was made and dropped.
type Class = (usize, bool);

fn class(timed: &Timed) -> Class {
    (timed.round.rows.len().max(timed.round.drafts.len() + 1), timed.round.stopped.is_some())
}

/// The one estimator of how much faster one answer was written than another.
fn estimate(own: &Answer, beside: &Answer) -> Option<Speedup> {
    between(&whole_rounds(own), &whole_rounds(beside))
}

/// The same where nothing was decoded beside: rounds with drafts against those without, then both together. Of n tokens
/// in rounds with drafts, `s` times as fast, and m in rounds without: (n + m) ÷ (n ÷ s + m).
fn over_undrafted(own: &Answer) -> Option<Speedup> {
    if own.stats().is_uncounted {
        return None; // a round without known drafts may have had some
    }
    let (plain, drafted): (Vec<Timed>, Vec<Timed>) =
        whole_rounds(own).into_iter().partition(|timed| timed.round.drafts.is_empty());
    let tokens = |all: &[Timed]| all.iter().map(|timed| timed.round.committed.len()).sum::<usize>() as f64;
    let (n, m) = (tokens(&drafted), tokens(&plain));
    let found = between(&drafted, &plain)?;
    let whole = |s: f64| (n + m) / (n / s + m);
    Some(Speedup {
        value: whole(found.value),
        low: whole(found.low),
        high: whole(found.high),
        tokens_per_round: (n + m) / (drafted.len() + plain.len()) as f64,
        from_undrafted: true,
        ..found
    })
}

fn between(own: &[Timed], beside: &[Timed]) -> Option<Speedup> {
    let expected = Expected::of(beside)?;
    let local = Local::of(stretches(own, beside), class, |timed| expected.us(timed));
    let cost = |timed: &Timed| local.cost(class(timed)).unwrap_or(1.0);
    let ratio = |stretch: &super::stretches::Stretch| {
        let took: f64 = stretch.rounds.iter().map(|timed| timed.us).sum();
        took / stretch.rounds.iter().map(cost).sum::<f64>() / stretch.unit(|timed| expected.us(timed))
    };
    let over_expected = mean_ratio(&local.stretches.iter().map(ratio).collect::<Vec<_>>())?;
    let tokens = |all: &[Timed]| all.iter().map(|timed| timed.round.committed.len()).sum::<usize>() as f64;
    let own_speed = tokens(own) / own.iter().map(cost).sum::<f64>();
    let beside_speed = tokens(beside) / beside.iter().map(|timed| expected.us(timed)).sum::<f64>();
    let at_expected = own_speed / beside_speed;
    let Interval { value, low, high } = over_expected.map(|over| at_expected / over);
    let tokens_per_round = tokens(own) / own.len() as f64;
    (value.is_finite() && value > 0.0).then_some(Speedup {
        value,
        low,
        high,
        tokens_per_round,
        trust: Trust::Plausible,
        from_undrafted: false,
    })
}

/// Expected time of a round of the other lane: the median of those that do the same work. Only ratios count, and plain
/// passes form a single class.
struct Expected(std::collections::BTreeMap<Class, f64>);

impl Expected {
    fn of(beside: &[Timed]) -> Option<Self> {
        let mut times: std::collections::BTreeMap<Class, Vec<f64>> = std::collections::BTreeMap::new();
        beside.iter().for_each(|timed| times.entry(class(timed)).or_default().push(timed.us));
        let medians = times.into_iter().filter_map(|(class, times)| Some((class, median(times)?)));
        (!beside.is_empty()).then(|| Self(medians.collect()))
    }

    fn us(&self, timed: &Timed) -> f64 {
        self.0.get(&class(timed)).copied().unwrap_or(1.0)
    }
}
