//! How fast time goes: phases a second, or as fast as it does.

use std::time::Duration;

/// Phases a second of each level but the last, which is full speed.
const LEVELS: [f32; 7] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0];

/// Longest wait between two phases when a recording plays as it was.
const MAX_GAP: Duration = Duration::from_secs(1);

/// A speed of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace(usize);

impl Default for Pace {
    fn default() -> Self {
        Self(LEVELS.len())
    }
}

impl Pace {
    pub(super) fn is_full(self) -> bool {
        self.0 >= LEVELS.len()
    }

    pub(super) fn slower(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    pub(super) fn faster(self) -> Self {
        Self((self.0 + 1).min(LEVELS.len()))
    }

    /// Time between two phases; `recorded` is what it was.
    pub(super) fn gap(self, recorded: Duration) -> Duration {
        LEVELS.get(self.0).map_or(recorded.min(MAX_GAP), |level| Duration::from_secs_f32(1.0 / level))
    }

    /// On screen.
    pub(super) fn name(self) -> String {
        LEVELS.get(self.0).map_or_else(|| "full speed".to_owned(), |level| format!("{level} phases/s"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_end_at_both_sides() {
        let mut pace = Pace::default();
        assert!(pace.is_full());
        assert_eq!(pace.gap(Duration::from_millis(7)), Duration::from_millis(7));
        assert_eq!(pace.gap(Duration::from_secs(60)), MAX_GAP);
        for _ in 0..20 {
            pace = pace.slower();
        }
        assert_eq!((pace.gap(Duration::ZERO), pace.name().as_str()), (Duration::from_secs(4), "0.25 phases/s"));
        for _ in 0..20 {
            pace = pace.faster();
        }
        assert_eq!(pace, Pace::default());
    }
}
