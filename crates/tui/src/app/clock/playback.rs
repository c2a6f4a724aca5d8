//! How a recording plays, as far as the front end knows it.
//!
//! Invariant: the source controls the pace; this is what it was asked for, for keys and screen.

use std::time::Duration;

/// Multiples of the recorded pace, slowest first.
const SPEEDS: [f32; 10] = [0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0];

/// How a recording plays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Playback {
    /// Multiple of the recorded pace, 0.02 to 16.
    pub speed: f32,
    /// Longest wait between two events, before `speed`.
    pub idle_limit: Duration,
    /// Whether it starts again at the end.
    pub loops: bool,
}

impl Default for Playback {
    fn default() -> Self {
        Self { speed: 1.0, idle_limit: Duration::from_secs(2), loops: false }
    }
}

impl Playback {
    /// The next speed up or down.
    pub(crate) fn turn(&mut self, faster: bool) {
        let next = if faster {
            SPEEDS.iter().find(|speed| **speed > self.speed)
        } else {
            SPEEDS.iter().rev().find(|speed| **speed < self.speed)
        };
        self.speed = next.copied().unwrap_or(self.speed);
    }

    /// Time between two phases that were recorded so far apart.
    pub(crate) fn gap(&self, recorded: Duration) -> Duration {
        recorded.min(self.idle_limit).div_f32(self.speed.max(SPEEDS[0]))
    }

    /// On screen.
    pub(crate) fn label(&self) -> String {
        let idle = self.idle_limit.as_secs_f64();
        format!("{}× · waits ≤ {idle} s{}", self.speed, if self.loops { " · loop" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_end_at_both_sides() {
        let mut playback = Playback { speed: 3.0, ..Playback::default() };
        playback.turn(true);
        assert_eq!(playback.speed, 4.0);
        (0..9).for_each(|_| playback.turn(true));
        assert_eq!((playback.speed, playback.gap(Duration::from_secs(60))), (16.0, Duration::from_millis(125)));
        (0..10).for_each(|_| playback.turn(false));
        assert_eq!((playback.speed, playback.gap(Duration::from_secs(1))), (0.02, Duration::from_secs(50)));
        assert_eq!(playback.label(), "0.02× · waits ≤ 2 s");
    }
}
