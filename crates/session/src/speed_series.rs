//! The speed of an answer over its time.

use super::turn::Answer;

/// One point of a speed curve: the state after a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpeedPoint {
    /// The lane's clock in its turn.
    pub clock_us: u64,
    /// Tokens committed in rounds up to here.
    pub tokens: u64,
    /// Tokens ÷ seconds over the window that ends here.
    pub tokens_per_second: f64,
}

impl Answer {
    /// Speed after each complete round, over a window of the last rounds that hold at least
    /// `window` tokens (fewer at the start). Rounds that followed a wait are left out, with their time.
    #[must_use]
    pub fn speed_series(&self, window: u64) -> Vec<SpeedPoint> {
        let mut ends = vec![(0_u64, 0_u64)];
        let mut points = Vec::new();
        let (mut tail, mut lane_us) = (0, 0);
        for round in self.rounds.iter().filter(|r| r.is_complete()) {
            let took = round.clock_us().saturating_sub(lane_us);
            lane_us = lane_us.max(round.clock_us());
            if round.follows_wait {
                continue;
            }
            let (clock, tokens) = ends.last().copied().unwrap_or_default();
            let now = (clock + took, tokens + round.committed().len() as u64);
            ends.push(now);
            while ends.get(tail + 1).is_some_and(|next| now.1 - next.1 >= window) {
                tail += 1;
            }
            let (from_clock, from_tokens) = ends[tail];
            let took = now.0 - from_clock;
            if took > 0 {
                points.push(SpeedPoint {
                    clock_us: now.0,
                    tokens: now.1,
                    tokens_per_second: (now.1 - from_tokens) as f64 * 1e6 / took as f64,
                });
            }
        }
        points
    }
}
