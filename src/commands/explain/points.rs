//! Figures for each draft length, from the answers that were played.

use anyhow::{Context, Result};
use draftscope::protocol::{Costs, Lane};
use draftscope::session::probe::{ProbeRun, Simulated};
use draftscope::session::{LaneStats, Turn};
use serde::Serialize;

/// Depth of the probe run's chains, and the longest k that is simulated.
pub(super) const LONGEST: u8 = 8;

/// One k over the whole suite.
#[derive(Serialize)]
pub(super) struct Point {
    /// k; none for the automatic choice.
    pub(super) draft_len: Option<usize>,
    pub(super) tokens_per_round: Option<f64>,
    pub(super) tokens_per_second: Option<f64>,
    /// Speed ÷ that of k = 0 with the same costs.
    pub(super) speedup: Option<f64>,
    pub(super) counts: Simulated,
}

pub(super) fn total<'a>(turns: impl Iterator<Item = &'a Turn>, lane: Lane) -> LaneStats {
    let mut sum = LaneStats::default();
    turns.for_each(|turn| sum.merge(turn.answer(lane).stats()));
    sum
}

pub(super) fn recordings<'a>(turns: impl Iterator<Item = &'a Turn>) -> Result<Vec<ProbeRun>> {
    let recordings = turns.map(|turn| ProbeRun::of(turn.answer(Lane::Speculative)));
    recordings.collect::<Option<_>>().context("the probe run was cut short; please report this")
}

pub(super) fn all(recordings: &[ProbeRun], play: impl Fn(&ProbeRun) -> Simulated) -> Simulated {
    let mut sum = Simulated::default();
    recordings.iter().for_each(|recording| sum.merge(&play(recording)));
    sum
}

/// Every k from 0 on, with these costs.
pub(super) fn curve(recordings: &[ProbeRun], costs: &Costs) -> Vec<Point> {
    let plain = all(recordings, |r| r.fixed(0, 0.0)).tokens_per_second(costs);
    let counts = (0..=usize::from(LONGEST)).map(|k| (Some(k), all(recordings, |r| r.fixed(k, 0.0))));
    counts.map(|(k, counts)| point(k, counts, costs, plain)).collect()
}

pub(super) fn point(draft_len: Option<usize>, counts: Simulated, costs: &Costs, plain: Option<f64>) -> Point {
    let speed = counts.tokens_per_second(costs);
    let speedup = speed.zip(plain).map(|(speed, plain)| speed / plain);
    Point { draft_len, tokens_per_round: counts.tokens_per_round(), tokens_per_second: speed, speedup, counts }
}

pub(super) fn fastest(curve: &[Point]) -> Option<&Point> {
    let known = curve.iter().filter(|point| point.speedup.is_some());
    known.reduce(|best, point| if point.speedup > best.speedup { point } else { best })
}
