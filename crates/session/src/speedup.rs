//! How much faster a turn was than another lane, measured on a machine that may do other work, too.
//!
//! Each [stretch](super::stretches) of a turn compares rounds with the other lane's passes that ran nearest in time:
//! what its rounds cost in such passes ÷ what rounds like them cost in the whole turn. The turn's round cost is the
//! geometric Hodges–Lehmann mean over stretches ([`draftscope_protocol::statistics`]), and `speedup = tokens per round ÷ round cost`,
//! each relative to the other lane's. Tokens are counted, so the interval is that of the time alone. Invariant: without
//! stretches there is no speedup, never a made-up one.

use std::cmp::Ordering;
use std::fmt;

use serde::Serialize;

use super::pass_costs::{PassCost, PassCosts};

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

    pub(super) fn trusted(mut self, has_ceiling: bool, passes: Option<&PassCosts>) -> Self {
        let wide = passes.is_some_and(|passes| passes.widths.iter().any(PassCost::is_below_one_row));
        self.trust = match self.low > self.tokens_per_round || wide {
            false => Trust::Plausible,
            true if has_ceiling => Trust::Disturbed,
            true => Trust::Remarkable,
        };
        self
    }
}
