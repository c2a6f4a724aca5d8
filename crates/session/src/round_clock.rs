//! The clock that curves over an answer are drawn on.

use draftscope_protocol::Lane;

use super::Turn;

impl Turn {
    /// Time of the run's own rounds in microseconds, after each of them. A round that followed a wait was not timed: it
    /// counts as long as its tokens take on average under its settings, so that the clock of an answer under one group of
    /// settings ends at [`Turn::decode_us`].
    #[must_use]
    pub fn round_clock(&self) -> &[u64] {
        self.measured().clock.get(|| self.add_up_rounds())
    }

    fn add_up_rounds(&self) -> Vec<u64> {
        let spans = self.settings_spans();
        let whole = self.tokens_per_second(Lane::Speculative);
        let speed = |index: usize| {
            let span = spans.iter().find(|span| span.rounds.contains(&index));
            span.and_then(|span| span.tokens_per_second).or(whole)
        };
        let (mut lane_us, mut clock) = (0, 0.0);
        let rounds = self.answer(Lane::Speculative).rounds.iter().enumerate();
        let after = rounds.map(|(index, round)| {
            if round.is_complete() {
                let took = round.clock_us().saturating_sub(lane_us) as f64;
                lane_us = lane_us.max(round.clock_us());
                let expected = || speed(index).map_or(0.0, |speed| round.committed().len() as f64 * 1e6 / speed);
                clock += if round.is_timed() { took } else { expected() };
            }
            clock as u64
        });
        after.collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture::{Script, fold};
    use draftscope_protocol::{EventKind, Lane};

    #[test]
    fn the_clock_of_the_rounds_ends_where_that_of_the_lane_ends() {
        let mut script = Script::prompted("hi", "Hello");
        for round in 0..30 {
            if round < 10 {
                script.push(Lane::Speculative, EventKind::Paused);
                script.push(Lane::Speculative, EventKind::Resumed);
            }
            script.round(&[(" a", 0.5)], &[(" a", 0.9), (" b", 0.9)]);
            script.plain(" a");
        }
        let session = fold(&script.events);
        let turn = &session.turns()[0];
        let rounds = &turn.answer(Lane::Speculative).rounds;
        assert!(rounds[..10].iter().all(|round| !round.is_timed()) && rounds[11].is_timed());
        let clock = turn.round_clock();
        assert!(clock.is_sorted() && clock[0] > 0, "a round that was not timed takes its place");
        let (end, whole) = (clock.last().copied().unwrap(), turn.decode_us(Lane::Speculative));
        assert!(end.abs_diff(whole) < 100, "{end} {whole}");
        let series = turn.speedup_series();
        assert!(series.first().unwrap().0 > clock[9] && series.last().unwrap().0 <= end);
    }
}
