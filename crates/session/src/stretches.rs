//! A turn cut into stretches: rounds of one lane, and the other lane's passes that ran nearest in time.
//!
//! Other work slows all lanes alike, for a while. Within a stretch of a few passes the machine hardly changes, so the
//! ratio of times there compares rounds with passes, however fast the machine was. Each pass belongs to one stretch, so
//! stretches do not share an error.

use std::collections::BTreeMap;

use super::round::Round;
use super::turn::Answer;
use draftscope_protocol::statistics::{LEAST, median};

/// Most rounds on either side of the other lane's passes, and most passes, in a stretch: what is farther away says
/// nothing about the machine at that time.
const REACH: usize = 16;

/// A complete round with its measured time.
#[derive(Clone, Copy)]
pub(super) struct Timed<'a> {
    pub(super) round: &'a Round,
    /// What is compared: the whole round, or its pass.
    pub(super) us: f64,
}

/// Rounds next to passes of the other lane; neither list is empty.
#[derive(Clone)]
pub(super) struct Stretch<'a> {
    pub(super) rounds: Vec<Timed<'a>>,
    pub(super) beside: Vec<Timed<'a>>,
}

/// The rounds of an answer that count, with the lane's clock before and after each.
pub(super) fn whole_rounds(answer: &Answer) -> Vec<Timed<'_>> {
    let mut clock = 0;
    let timed = answer.rounds.iter().filter(|round| round.is_complete()).filter_map(|round| {
        let us = round.clock_us().saturating_sub(clock);
        clock = clock.max(round.clock_us());
        (us > 0 && round.is_timed()).then_some(Timed { round, us: us as f64 })
    });
    timed.collect()
}

/// The same with the time of the target's pass.
pub(super) fn passes(answer: &Answer) -> Vec<Timed<'_>> {
    let rounds = answer.rounds.iter().filter(|round| round.is_complete() && round.is_timed());
    let timed = rounds.map(|round| Timed { round, us: round.verify_us() as f64 });
    timed.filter(|timed| timed.us > 0.0 && !timed.round.rows().is_empty()).collect()
}

/// Cuts a turn: every run of passes that no round interrupts, with the nearer half of the rounds before it and of those
/// after it. Both lists are in the order of time.
pub(super) fn stretches<'a>(rounds: &[Timed<'a>], beside: &[Timed<'a>]) -> Vec<Stretch<'a>> {
    let mut cut: Vec<Stretch> = Vec::new();
    let mut waiting = Vec::new(); // passes beside that no round was left for
    let (mut from, mut at) = (0, 0); // rounds that no stretch has yet, and those before the passes at hand
    let mut runs = runs(rounds, beside).into_iter().peekable();
    while let Some((before, run)) = runs.next() {
        at = at.max(before);
        let next = runs.peek().map_or(rounds.len(), |(next, _)| *next);
        let after = next - at;
        let to = at + if runs.peek().is_some() { after / 2 } else { after };
        waiting.extend_from_slice(run);
        let near = from.max(at.saturating_sub(REACH))..to.min(at + REACH);
        from = to;
        if !near.is_empty() {
            waiting.truncate(REACH);
            cut.push(Stretch { rounds: rounds[near].to_vec(), beside: std::mem::take(&mut waiting) });
        }
    }
    cut
}

/// Runs of the other lane's passes, with the number of rounds before each.
fn runs<'a, 'b>(rounds: &[Timed], beside: &'b [Timed<'a>]) -> Vec<(usize, &'b [Timed<'a>])> {
    let before = |pass: &Timed| rounds.partition_point(|timed| timed.round.ended_after < pass.round.ended_after);
    beside.chunk_by(|a, b| before(a) == before(b)).filter_map(|run| Some((before(run.first()?), run))).collect()
}

/// Largest ratio of two times that should be alike, in a stretch in which the machine kept its speed.
const STEADY: f64 = 1.6;

/// Stretches, and what a round of each class costs in passes at the same time.
pub(super) struct Local<'a, C> {
    pub(super) stretches: Vec<Stretch<'a>>,
    cost: BTreeMap<C, f64>,
}

impl<'a, C: Ord + Copy> Local<'a, C> {
    /// From a turn's stretches. `class` identifies rounds that do the same work, `beside` is the expected time of a
    /// pass, in any unit. Stretches in which the machine changed its speed are dropped if enough remain.
    pub(super) fn of(
        mut stretches: Vec<Stretch<'a>>,
        class: impl Fn(&Timed) -> C,
        beside: impl Fn(&Timed) -> f64,
    ) -> Self {
        let mut relative: BTreeMap<C, Vec<f64>> = BTreeMap::new();
        for stretch in &stretches {
            let unit = stretch.unit(&beside);
            stretch.rounds.iter().for_each(|timed| relative.entry(class(timed)).or_default().push(timed.us / unit));
        }
        let cost: BTreeMap<C, f64> = relative.into_iter().filter_map(|(of, all)| Some((of, median(all)?))).collect();
        let expected = |timed: &Timed| cost.get(&class(timed)).copied().unwrap_or(1.0);
        let steady = |stretch: &&Stretch| stretch.is_steady(expected, &beside);
        if stretches.iter().filter(steady).count() >= LEAST {
            stretches.retain(|stretch| steady(&stretch));
        }
        Self { stretches, cost }
    }

    /// Cost of a round of this class, in passes; if none was near one, that of the nearest class.
    pub(super) fn cost(&self, class: C) -> Option<f64> {
        let (mut below, mut above) = (self.cost.range(..=class), self.cost.range(class..));
        below.next_back().or_else(|| above.next()).map(|(_, cost)| *cost)
    }
}

impl Stretch<'_> {
    /// Time of what should be one pass.
    pub(super) fn unit(&self, beside: impl Fn(&Timed) -> f64) -> f64 {
        let us: f64 = self.beside.iter().map(|timed| timed.us).sum();
        us / self.beside.iter().map(beside).sum::<f64>()
    }

    /// Whether the machine kept its speed. If it slowed down in the middle, rounds before are compared with passes
    /// after.
    fn is_steady(&self, of_round: impl Fn(&Timed) -> f64, of_beside: impl Fn(&Timed) -> f64) -> bool {
        let range = |times: &[Timed], expected: &dyn Fn(&Timed) -> f64| {
            let relative = times.iter().map(|timed| timed.us / expected(timed));
            relative.fold((f64::INFINITY, 0.0_f64), |(low, high), at| (low.min(at), high.max(at)))
        };
        let (rounds, beside) = (range(&self.rounds, &of_round), range(&self.beside, &of_beside));
        rounds.1.max(beside.1) <= rounds.0.min(beside.0) * STEADY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds by the order in which they ended: `r` of the own lane, `p` beside.
    fn cut(order: &str) -> Vec<(usize, usize)> {
        let made: Vec<Round> =
            (0..order.len()).map(|at| Round { ended_after: at as u64, ..Round::default() }).collect();
        let of = |lane: char| {
            let kept = made.iter().zip(order.chars()).filter(move |(_, c)| *c == lane);
            kept.map(|(round, _)| Timed { round, us: 1.0 }).collect::<Vec<_>>()
        };
        stretches(&of('r'), &of('p')).iter().map(|s| (s.rounds.len(), s.beside.len())).collect()
    }

    #[test]
    fn each_run_of_passes_has_the_rounds_nearest_to_it() {
        assert_eq!(cut("rrprrprr"), [(3, 1), (3, 1)]);
        assert_eq!(cut("rprpprp"), [(1, 1), (1, 2), (1, 1)]);
        assert_eq!(cut("prrppp"), [(1, 1), (1, 3)], "half of the rounds between are nearer to each");
        assert_eq!(cut("prpr"), [(2, 2)], "a pass without a round of its own waits for the next");
        assert_eq!(cut("rrr"), []);
        assert_eq!(cut("ppp"), []);
    }

    #[test]
    fn what_is_far_away_is_left_out() {
        let order = format!("{}p{}{}", "r".repeat(40), "r".repeat(40), "p".repeat(40));
        assert_eq!(cut(&order), [(32, 1), (16, 16)]);
    }
}
