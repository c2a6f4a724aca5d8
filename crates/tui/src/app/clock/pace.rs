//! How fast an answer proceeds: rounds per second, or as fast as the engine computes.
//!
//! Invariant: a pace only determines the wait between two phases; measurements do not include it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Rounds per second that the keys select, slowest first; after the last comes full speed.
const LEVELS: [f32; 9] = [0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0];

/// Rounds per second of `slow`, and of the beginning of a slow start.
const SLOW: f32 = 2.0;

/// Allowed rounds per second.
const FASTEST: f32 = 100.0;

/// Rounds of a slow start at its first pace, to be read at leisure.
const LEVEL_ROUNDS: usize = 4;

/// The round with which a slow start ends.
pub(crate) const RAMP_ROUNDS: usize = 15;

/// Each later round of a slow start is this much faster than the one before: 2 to 32 rounds per second in ten rounds.
const STEEPNESS: f32 = 1.32;

/// Longest wait between two phases when a recording plays as it was.
const MAX_GAP: Duration = Duration::from_secs(1);

/// How fast an answer proceeds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Pace {
    /// As fast as the engine computes.
    #[default]
    Full,
    /// A slow start: two rounds per second, then faster with every round, at full speed from the 15th.
    Ramp,
    /// So many rounds per second, 0.05 to 100.
    Rounds(f32),
}

impl Pace {
    /// The settings panel's choices, in order.
    pub(crate) const CHOICES: [Self; 8] = [
        Self::Full,
        Self::Ramp,
        Self::Rounds(8.0),
        Self::Rounds(4.0),
        Self::SLOW,
        Self::Rounds(1.0),
        Self::Rounds(0.5),
        Self::Rounds(0.2),
    ];

    /// The pace of an answer that plays again, and of `slow`.
    pub(crate) const SLOW: Self = Self::Rounds(SLOW);

    pub(crate) fn is_full(self) -> bool {
        self == Self::Full
    }

    /// Rounds per second in this round of an answer (1 is the first); `None` at full speed.
    pub(crate) fn rate(self, round: usize) -> Option<f32> {
        match self {
            Self::Full => None,
            Self::Rounds(rate) => Some(rate),
            Self::Ramp if round >= RAMP_ROUNDS => None,
            Self::Ramp => Some(SLOW * STEEPNESS.powi(round.saturating_sub(LEVEL_ROUNDS) as i32)),
        }
    }

    /// The next slower constant pace, seen from this round of an answer.
    pub(crate) fn slower(self, round: usize) -> Self {
        let now = self.rate(round).unwrap_or(f32::INFINITY);
        // skip a level that is hardly slower
        Self::Rounds(LEVELS.iter().rev().copied().find(|level| *level < 0.9 * now).unwrap_or(LEVELS[0]))
    }

    /// The next faster pace; from a slow start that is full speed.
    pub(crate) fn faster(self) -> Self {
        let Self::Rounds(now) = self else { return Self::Full };
        LEVELS.iter().copied().find(|level| *level > now).map_or(Self::Full, Self::Rounds)
    }

    /// Time between two of the `steps` that are shown of a round; `recorded` is what it was.
    pub(crate) fn gap(self, (round, steps): (usize, usize), recorded: Duration) -> Duration {
        let gap = |rate: f32| Duration::from_secs_f32(1.0 / (rate * steps.max(1) as f32));
        self.rate(round).map_or(recorded.min(MAX_GAP), gap)
    }

    /// Its text on screen, in this round of an answer.
    pub(crate) fn name(self, round: usize) -> String {
        let rounds = |rate: f32| match rate {
            1.0 => "1 round/s".to_owned(),
            10.0.. => format!("{rate:.0} rounds/s"),
            _ => format!("{} rounds/s", (rate * 100.0).round() / 100.0),
        };
        match self.rate(round) {
            None => "full speed".to_owned(),
            Some(rate) if self == Self::Ramp => format!("slow start, {}", rounds((rate * 10.0).round() / 10.0)),
            Some(rate) => rounds(rate),
        }
    }

    /// Its text in the settings.
    pub(crate) fn label(self) -> String {
        if self == Self::Ramp { "slow start".to_owned() } else { self.name(1) }
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("full"),
            Self::Ramp => f.write_str("ramp"),
            Self::Rounds(rate) => write!(f, "{rate}"),
        }
    }
}

impl FromStr for Pace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "full" => return Ok(Self::Full),
            "ramp" => return Ok(Self::Ramp),
            "slow" => return Ok(Self::SLOW),
            _ => {}
        }
        let rate = text.parse().ok().filter(|rate| (LEVELS[0]..=FASTEST).contains(rate));
        let wanted = format!("full, slow, ramp, or rounds a second from {} to {FASTEST}", LEVELS[0]);
        rate.map(Self::Rounds).ok_or(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_end_at_both_sides() {
        let mut pace = Pace::default();
        assert!(pace.is_full());
        assert_eq!(pace.gap((1, 5), Duration::from_millis(7)), Duration::from_millis(7));
        assert_eq!(pace.gap((1, 5), Duration::from_secs(60)), MAX_GAP);
        for _ in 0..20 {
            pace = pace.slower(1);
        }
        assert_eq!(
            (pace.gap((1, 5), Duration::ZERO), pace.name(1).as_str()),
            (Duration::from_secs(4), "0.05 rounds/s")
        );
        for _ in 0..20 {
            pace = pace.faster();
        }
        assert_eq!(pace, Pace::default());
        assert_eq!(Pace::Rounds(1.0).name(3), "1 round/s");
        assert_eq!(Pace::Rounds(3.0).slower(1), Pace::Rounds(2.0));
        assert_eq!(Pace::Rounds(3.0).faster(), Pace::Rounds(4.0));
    }

    #[test]
    fn a_slow_start_speeds_up_smoothly_and_ends_by_the_fifteenth_round() {
        let rates: Vec<_> = (1..RAMP_ROUNDS).map(|round| Pace::Ramp.rate(round).unwrap()).collect();
        assert_eq!(rates[..LEVEL_ROUNDS], [SLOW; LEVEL_ROUNDS]);
        assert!(rates.windows(2).all(|pair| pair[0] <= pair[1] && pair[1] < 1.4 * pair[0]), "{rates:?}");
        assert!(rates.last().is_some_and(|rate| *rate > 30.0), "as good as full speed");
        assert_eq!(Pace::Ramp.rate(RAMP_ROUNDS), None);
        let seconds: f32 = rates.iter().map(|rate| 1.0 / rate).sum();
        assert!((3.0..5.0).contains(&seconds), "{seconds} s");
        assert_eq!((Pace::Ramp.slower(1), Pace::Ramp.slower(9)), (Pace::Rounds(1.0), Pace::Rounds(4.0)));
        assert_eq!(Pace::Ramp.faster(), Pace::Full);
    }

    #[test]
    fn paces_are_read_as_they_are_written() {
        for pace in Pace::CHOICES {
            assert_eq!(pace.to_string().parse(), Ok(pace));
        }
        assert_eq!("slow".parse(), Ok(Pace::Rounds(2.0)));
        for wrong in ["", "0", "-1", "NaN", "inf", "101", "fast"] {
            assert!(wrong.parse::<Pace>().is_err(), "{wrong}");
        }
    }
}
