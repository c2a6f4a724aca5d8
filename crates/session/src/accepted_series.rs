//! The share of drafts accepted, over an answer.

use super::turn::Turn;
use draftscope_protocol::Lane;

/// Rounds of a mean.
pub const ACCEPTED_WINDOW: usize = 9;

impl Turn {
    /// Accepted ÷ drafted over the last [`ACCEPTED_WINDOW`] rounds, by [`Turn::round_clock`] in microseconds. Rounds that
    /// draft nothing move the clock alone.
    #[must_use]
    pub fn accepted_series(&self) -> &[(u64, f64)] {
        self.measured().accepted.get(|| self.accepted_over_time())
    }

    fn accepted_over_time(&self) -> Vec<(u64, f64)> {
        let rounds = self.answer(Lane::Speculative).rounds.iter().zip(self.round_clock());
        let (counts, clocks): (Vec<_>, Vec<_>) = rounds
            .filter(|(round, _)| round.is_complete())
            .map(|(round, clock)| ((round.drafts.len(), round.accepted()), *clock))
            .unzip();
        let mean = |window: &[(usize, usize)]| {
            let (drafted, accepted) = window.iter().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
            (drafted > 0).then(|| accepted as f64 / drafted as f64)
        };
        let ends = clocks.iter().skip(ACCEPTED_WINDOW - 1);
        let points = counts.windows(ACCEPTED_WINDOW).zip(ends);
        points.filter_map(|(window, clock)| Some((*clock, mean(window)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Script;
    use super::*;
    use crate::fixture::fold;

    #[test]
    fn it_is_the_mean_of_the_last_rounds() {
        let mut script = Script::prompted("hi", "Hello");
        for number in 0..ACCEPTED_WINDOW + 2 {
            let target = if number < 3 { " a" } else { " x" };
            script.round(&[(" a", 0.9)], &[(target, 0.9), (" b", 0.8)]);
        }
        let session = fold(&script.events);
        let shares: Vec<f64> = session.turns()[0].accepted_series().iter().map(|point| point.1).collect();
        assert_eq!(shares, [3.0, 2.0, 1.0].map(|accepted| accepted / ACCEPTED_WINDOW as f64));
        let clocks = session.turns()[0].accepted_series();
        assert!(clocks.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
