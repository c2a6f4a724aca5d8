//! The current costs of a machine whose speed changes: the costs measured at the start, corrected by the times of
//! rounds.
//!
//! A shared machine gets slower and faster as a whole. This does not change which k is best; only the ratios of widths
//! at the same time matter. So the logarithm of a time is modelled as that of the measured cost, plus the machine's
//! current speed, which varies, plus a correction of the width, which varies slowly and resembles that of neighbouring
//! widths. A Kalman filter separates them: a change with the width from one round to the next belongs to the width, a
//! change from one answer to the next to the machine. The cost of one row after a discarded draft and that of a round's
//! first draft are ratios to these. A block drafter's pass and what each token adds to it are medians of the last rounds
//! instead: a token's own part is too short for a logarithm of its time to say much. Invariant: this code reads no clock, and a single outlier changes no estimate much.

use crate::Costs;
use crate::statistics::median;

// Standard deviations are those of the logarithm of a time.

/// Standard deviation of the machine's speed relative to the measurement at the start.
const SPEED: f64 = 0.5;
/// Standard deviation of its change between two answers.
const SPEED_JUMP: f64 = 0.4;
/// Standard deviation of its change from one observation to the next.
const SPEED_STEP: f64 = 0.03;
/// Standard deviation of a width's correction.
const WIDTH: f64 = 0.1;
/// Standard deviation of its change from one observation to the next.
const WIDTH_STEP: f64 = 0.003;
/// Distance in rows over which corrections of widths are correlated.
const REACH: f64 = 4.0;
/// Standard deviation of a draft's correction.
const DRAFT: f64 = 0.3;
/// Noise of one observation.
const NOISE: f64 = 0.08;
/// Noise of an observed draft, which takes a short time.
const DRAFT_NOISE: f64 = 0.2;
/// Standard deviations at which a surprise is cut off.
const MOST: f64 = 2.5;
/// Observations of the overhead, or of a block drafter, whose median is used.
const WINDOW: usize = 15;
/// One row after a discarded draft ÷ one row of a plain round, before the first observation.
const DISCARDED_GUESS: f64 = 1.05;
/// Weight of a guess, in observations.
const RATIO_WEIGHT: f64 = 4.0;
/// Factor by which a ratio's sum fades with each observation.
const RATIO_KEEP: f64 = 0.98;
/// Limit on the extra cost of one row after a discarded draft, as a share of a second row's cost. Without it no draft
/// might be discarded any more, and the ratio would get no observations.
const DISCARDED_MOST: f64 = 0.75;
/// Largest factor by which one observation changes a ratio.
const RATIO_MOST: f64 = 2.0;

/// Estimates of the speed, of each width and of a draft, in this order, as logarithms.
#[derive(Clone, Debug)]
struct Filter {
    mean: Vec<f64>,
    /// Covariance, row by row.
    spread: Vec<Vec<f64>>,
    /// Covariance that each step adds.
    step: Vec<Vec<f64>>,
    /// Sign of the last surprise that was cut off.
    cut: f64,
}

impl Filter {
    fn new(widths: usize) -> Self {
        let size = widths + 2;
        let kind = |i: usize, speed: f64, width: f64, draft: f64| match i {
            0 => speed,
            _ if i + 1 == size => draft,
            _ => width,
        };
        let table = |speed: f64, width: f64, draft: f64| -> Vec<Vec<f64>> {
            let entry = |i: usize, j: usize| {
                let alike = match (i, j) {
                    _ if i == j => 1.0,
                    _ if i.min(j) == 0 || i.max(j) + 1 == size => 0.0,
                    _ => (-(i.abs_diff(j) as f64) / REACH).exp(),
                };
                alike * kind(i, speed, width, draft) * kind(j, speed, width, draft)
            };
            (0..size).map(|i| (0..size).map(|j| entry(i, j)).collect()).collect()
        };
        Self {
            mean: vec![0.0; size],
            spread: table(SPEED, WIDTH, DRAFT),
            step: table(SPEED_STEP, WIDTH_STEP, WIDTH_STEP),
            cut: 0.0,
        }
    }

    /// Takes an observation: the logarithm of a time ÷ the measured cost of entry `of`.
    fn observe(&mut self, of: usize, seen: f64, noise: f64) {
        for (row, step) in self.spread.iter_mut().zip(&self.step) {
            row.iter_mut().zip(step).for_each(|(spread, step)| *spread += step);
        }
        let surprise = seen - self.mean[0] - self.mean[of];
        let own = |spread: &[Vec<f64>]| -> Vec<f64> { spread.iter().map(|row| row[0] + row[of]).collect() };
        let mut gain = own(&self.spread);
        let mut total = gain[0] + gain[of] + noise * noise;
        let most = MOST * total.sqrt();
        if surprise.abs() > most && surprise.signum() == self.cut {
            // twice in the same direction: the machine's speed changed
            self.spread[0][0] += surprise * surprise;
            gain = own(&self.spread);
            total = gain[0] + gain[of] + noise * noise;
        }
        self.cut = if surprise.abs() > most { surprise.signum() } else { 0.0 };
        let surprise = surprise.clamp(-MOST * total.sqrt(), MOST * total.sqrt());
        for (mean, gain) in self.mean.iter_mut().zip(&gain) {
            *mean += gain * surprise / total;
        }
        for (i, row) in self.spread.iter_mut().enumerate() {
            row.iter_mut().zip(&gain).for_each(|(spread, other)| *spread -= gain[i] * other / total);
        }
    }

    /// Standard deviation of the difference of two entries.
    fn apart(&self, a: usize, b: usize) -> f64 {
        (self.spread[a][a] + self.spread[b][b] - 2.0 * self.spread[a][b]).max(0.0).sqrt()
    }
}

/// The ratio of two times: a fading mean of logarithms.
#[derive(Clone, Copy, Debug, Default)]
struct Ratio {
    sum: f64,
    seen: f64,
}

impl Ratio {
    fn observe(&mut self, took_us: f64, expected_us: f64) {
        if let Some(seen) = relative(took_us, expected_us) {
            self.sum = self.sum * RATIO_KEEP + seen.clamp(-RATIO_MOST.ln(), RATIO_MOST.ln());
            self.seen = self.seen * RATIO_KEEP + 1.0;
        }
    }

    fn now(&self, guess: f64) -> f64 {
        ((self.sum + guess.ln() * RATIO_WEIGHT) / (self.seen + RATIO_WEIGHT)).exp()
    }
}

/// The last observations of one part of a round, in microseconds.
#[derive(Clone, Debug, Default)]
struct Recent(Vec<f64>);

impl Recent {
    fn observe(&mut self, took_us: f64) {
        if took_us.is_finite() && took_us > 0.0 {
            self.0.push(took_us);
            if self.0.len() > WINDOW {
                self.0.remove(0);
            }
        }
    }

    fn median(&self) -> Option<f64> {
        median(self.0.clone())
    }
}

/// The current costs of rounds.
#[derive(Clone, Debug)]
pub(super) struct Now {
    /// A round without drafts.
    pub(super) plain_us: f64,
    /// Extra cost of a round's first draft; of a block drafter its pass.
    pub(super) first_us: f64,
    /// The parts of a round in which the drafter ran. One row then costs more than in a plain round, since less of the
    /// target's weights is in a cache.
    pub(super) costs: Costs,
}

/// Costs at the start, and corrections.
#[derive(Clone, Debug)]
pub(super) struct CostModel {
    base: Costs,
    filter: Filter,
    /// One row after a discarded draft ÷ one row of a plain round.
    discarded: Ratio,
    /// A round's first draft ÷ a later one.
    first: Ratio,
    /// The pass of a block drafter; empty for others.
    block_pass: Recent,
    /// What each token adds to that pass.
    block_draft: Recent,
    plain_overhead: Recent,
    overhead: Recent,
}

impl CostModel {
    pub(super) fn new(base: Costs) -> Self {
        Self {
            filter: Filter::new(base.verify_us.len()),
            base,
            discarded: Ratio::default(),
            first: Ratio::default(),
            block_pass: Recent::default(),
            block_draft: Recent::default(),
            plain_overhead: Recent::default(),
            overhead: Recent::default(),
        }
    }

    /// Prepares for the next answer. The machine's speed may have changed meanwhile, so a change of times then says
    /// little about a width that changes at the same time.
    pub(super) fn begin_answer(&mut self) {
        self.filter.spread[0][0] += SPEED_JUMP * SPEED_JUMP;
    }

    /// Observes the time of a target pass over `rows` rows.
    pub(super) fn verified(&mut self, rows: usize, took_us: f64) {
        let expected = rows.checked_sub(1).and_then(|i| self.base.verify_us.get(i));
        if let Some(seen) = expected.and_then(|expected| relative(took_us, *expected)) {
            self.filter.observe(rows, seen, NOISE);
        }
    }

    /// Observes the time of a pass over one row after a discarded draft.
    pub(super) fn verified_after_discarded(&mut self, took_us: f64) {
        let plain_us = self.verify_us(|_| 0.0)[0];
        self.discarded.observe(took_us, plain_us);
    }

    /// Observes the times of a round's drafts: the first one, and the mean of the others, if any. The drafter must have
    /// had nothing to catch up on.
    pub(super) fn drafted(&mut self, first_us: f64, later_us: Option<f64>) {
        if let Some(seen) = later_us.and_then(|later| relative(later, self.base.draft_us.max(1.0))) {
            self.filter.observe(self.base.verify_us.len() + 1, seen, DRAFT_NOISE);
        }
        let later_us = self.draft_us();
        self.first.observe(first_us, later_us);
    }

    /// Whether one pass makes all drafts of a round, as timed at the start or observed since.
    pub(super) fn drafts_blocks(&self) -> bool {
        self.base.draft_pass_us > 0.0 || !self.block_pass.0.is_empty()
    }

    /// Observes the times of drafts that one pass made: up to the first one, and the mean of the others, if any. The
    /// drafter must have had nothing to catch up on.
    pub(super) fn drafted_block(&mut self, first_us: f64, later_us: Option<f64>) {
        if let Some(later_us) = later_us {
            self.block_draft.observe(later_us.max(1.0)); // events count whole microseconds
        }
        self.block_pass.observe(first_us - self.block_draft_us());
    }

    /// Observes the time of a round outside model passes.
    pub(super) fn overhead(&mut self, took_us: f64, is_plain: bool) {
        let recent = if is_plain { &mut self.plain_overhead } else { &mut self.overhead };
        recent.observe(took_us);
    }

    /// The current costs.
    pub(super) fn now(&self) -> Now {
        self.with(|_| 0.0)
    }

    /// The current costs, but those of widths other than `rows` are lower by `hope` standard errors.
    pub(super) fn hoped(&self, rows: usize, hope: f64) -> Now {
        self.with(|width| -hope * self.filter.apart(width, rows))
    }

    fn speed(&self) -> f64 {
        self.filter.mean[0].exp()
    }

    fn draft_us(&self) -> f64 {
        self.base.draft_us.max(1.0) * self.speed() * self.filter.mean[self.filter.mean.len() - 1].exp()
    }

    /// What a token adds to a block drafter's pass. Until it was seen, all of a draft that was timed without its pass.
    fn block_draft_us(&self) -> f64 {
        let timed = if self.base.draft_pass_us > 0.0 { self.base.draft_us.max(1.0) * self.speed() } else { 1.0 };
        self.block_draft.median().unwrap_or(timed)
    }

    /// Time of a draft, and the extra cost of a round's first one.
    fn drafting_us(&self) -> (f64, f64) {
        if self.drafts_blocks() {
            let pass_us = self.block_pass.median().unwrap_or(self.base.draft_pass_us * self.speed());
            return (self.block_draft_us(), pass_us);
        }
        let draft_us = self.draft_us();
        (draft_us, draft_us * (self.first.now(1.0) - 1.0))
    }

    fn verify_us(&self, shift: impl Fn(usize) -> f64) -> Vec<f64> {
        let widths = self.base.verify_us.iter().zip(1..);
        let now = |(base, width)| base * self.speed() * (self.filter.mean[width] + shift(width)).exp();
        rising(widths.map(now).collect())
    }

    fn with(&self, shift: impl Fn(usize) -> f64) -> Now {
        let mut verify_us = self.verify_us(shift);
        let one_row = verify_us[0];
        let two_rows = verify_us.get(1).copied().unwrap_or(one_row);
        verify_us[0] = (one_row * self.discarded.now(DISCARDED_GUESS))
            .clamp(one_row, one_row + DISCARDED_MOST * (two_rows - one_row));
        let usual = self.base.overhead_us * self.speed();
        let (alone, drafting) = (self.plain_overhead.median(), self.overhead.median());
        let (draft_us, first_us) = self.drafting_us();
        Now {
            plain_us: one_row + alone.or(drafting).unwrap_or(usual),
            first_us,
            costs: Costs {
                verify_us,
                draft_us,
                draft_pass_us: 0.0, // part of `first_us`
                settle_us: self.base.settle_us * self.speed(),
                overhead_us: drafting.or(alone).unwrap_or(usual),
            },
        }
    }
}

fn relative(took_us: f64, expected: f64) -> Option<f64> {
    let ratio = (took_us / expected).ln();
    ratio.is_finite().then_some(ratio)
}

/// The nearest curve that never falls (pool adjacent violators): more rows cannot cost less, so a decrease is noise.
pub fn rising(curve: Vec<f64>) -> Vec<f64> {
    let mut pools: Vec<(f64, usize)> = Vec::with_capacity(curve.len());
    for value in curve {
        let mut pool = (value, 1);
        while let Some(before) = pools.pop_if(|before| before.0 > pool.0) {
            let count = before.1 + pool.1;
            pool = ((before.0 * before.1 as f64 + pool.0 * pool.1 as f64) / count as f64, count);
        }
        pools.push(pool);
    }
    pools.into_iter().flat_map(|(value, count)| std::iter::repeat_n(value, count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> Costs {
        Costs {
            verify_us: vec![1000.0, 1100.0, 1200.0],
            draft_us: 90.0,
            draft_pass_us: 0.0,
            settle_us: 10.0,
            overhead_us: 20.0,
        }
    }

    #[test]
    fn a_curve_that_falls_is_flattened() {
        assert_eq!(rising(vec![1.0, 2.0, 3.0]), [1.0, 2.0, 3.0]);
        assert_eq!(rising(vec![1.0, 4.0, 2.0, 3.0, 9.0]), [1.0, 3.0, 3.0, 3.0, 9.0]);
        assert!(rising(Vec::new()).is_empty());
    }

    #[test]
    fn a_slower_machine_scales_everything() {
        let mut model = CostModel::new(base());
        for i in 0..20 {
            let rows = 1 + i % 3;
            model.verified(rows, 2.0 * base().verify_us[rows - 1]);
            model.drafted(180.0, Some(180.0));
            model.overhead(40.0, i % 2 == 0);
        }
        let now = model.now().costs;
        for (got, want) in model.verify_us(|_| 0.0).iter().zip(base().verify_us) {
            assert!((got / want - 2.0).abs() < 0.04, "{now:?}");
        }
        assert!((now.draft_us / 90.0 - 2.0).abs() < 0.05 && (now.overhead_us - 40.0).abs() < 1e-9, "{now:?}");
        assert!((now.settle_us / 10.0 - 2.0).abs() < 0.05, "{now:?}");
    }

    #[test]
    fn a_width_is_corrected_only_relative_to_other_widths() {
        let mut model = CostModel::new(base());
        let unsure = model.hoped(2, 1.0).plain_us / model.now().plain_us;
        // a slow time begins while only two rows run, and lasts
        (0..200).for_each(|_| model.verified(2, 1650.0));
        let now = model.verify_us(|_| 0.0);
        assert!((now[1] - 1650.0).abs() < 20.0, "{now:?}");
        assert!((now[0] / now[1] - 1.0 / 1.1).abs() < 0.05, "one row was not observed: {now:?}");
        (0..12).for_each(|_| model.verified(1, 1000.0));
        let now = model.verify_us(|_| 0.0);
        assert!(now[1] / now[0] > 1.25, "one row is cheap in the same slow time: {now:?}");
        let sure = model.hoped(2, 1.0).plain_us / model.now().plain_us;
        assert!(sure > unsure, "{sure} {unsure}");
        (0..200).for_each(|_| model.verified(1, 1000.0));
        let now = model.verify_us(|_| 0.0);
        assert!(now[1] / now[0] > 1.25, "and stays so while one row runs alone: {now:?}");
    }

    #[test]
    fn a_change_between_two_answers_is_attributed_to_the_machine() {
        let ratio = |between: bool| {
            let mut model = CostModel::new(base());
            (0..60).for_each(|_| model.verified(1, 1000.0));
            if between {
                model.begin_answer();
            }
            (0..4).for_each(|_| model.verified(2, 1500.0));
            let now = model.verify_us(|_| 0.0);
            now[1] / now[0]
        };
        assert!((ratio(true) - 1.1).abs() < 0.02 && ratio(false) > 1.13, "{} {}", ratio(true), ratio(false));
    }

    #[test]
    fn a_width_that_became_costlier_is_corrected_and_an_outlier_is_ignored() {
        let mut model = CostModel::new(base());
        for _ in 0..24 {
            for _ in 0..4 {
                model.verified(1, 1000.0);
            }
            model.verified(2, 1650.0);
            model.verified(3, 1800.0);
        }
        model.verified(1, 90_000.0);
        model.verified(1, 1000.0);
        let now = model.verify_us(|_| 0.0);
        assert!((now[1] / now[0] - 1.65).abs() < 0.08, "{now:?}");
        assert!((now[0] - 1000.0).abs() < 100.0, "{now:?}");
        assert!((now[2] / now[0] - 1.8).abs() < 0.08, "{now:?}");
    }

    #[test]
    fn the_pass_of_a_block_is_no_slow_machine() {
        let base = Costs { draft_us: 5.0, draft_pass_us: 400.0, ..base() };
        let mut model = CostModel::new(base.clone());
        assert_eq!((model.now().first_us, model.now().costs.draft_us), (400.0, 5.0), "as timed at the start");
        for k in 1..40 {
            model.verified(1, 1000.0);
            model.drafted_block(450.0, (k > 1).then_some(4.0));
        }
        let now = model.now();
        assert!((now.first_us - 446.0).abs() < 2.0 && now.costs.draft_us == 4.0, "{now:?}");
        assert!((now.plain_us - 1020.0).abs() < 1.0, "the pass says nothing about the machine's speed: {now:?}");
        // costs that know of no pass, as older programs remembered them: the rounds show it
        let mut unaware = CostModel::new(Costs { draft_us: 60.0, draft_pass_us: 0.0, ..base });
        assert!(!unaware.drafts_blocks());
        unaware.drafted_block(450.0, Some(4.0));
        assert!(unaware.drafts_blocks() && unaware.now().first_us == 446.0, "{:?}", unaware.now());
    }

    #[test]
    fn a_discarded_draft_also_makes_the_next_pass_slower() {
        let mut model = CostModel::new(base());
        for _ in 0..60 {
            model.verified(1, 1000.0);
            model.verified_after_discarded(1050.0);
            model.drafted(120.0, Some(80.0));
            model.drafted(120.0, None);
            model.overhead(20.0, true);
            model.overhead(50.0, false);
        }
        let now = model.now();
        assert!((now.plain_us - 1020.0).abs() < 5.0, "{now:?}");
        assert!((now.costs.verify_us[0] - 1050.0).abs() < 10.0 && now.costs.overhead_us == 50.0, "{now:?}");
        assert!((now.costs.draft_us - 80.0).abs() < 5.0 && (now.first_us - 40.0).abs() < 5.0, "{now:?}");
        (0..60).for_each(|_| model.verified_after_discarded(90_000.0));
        let now = model.now().costs.verify_us;
        assert!(now.is_sorted() && now[0] <= 2000.0, "{now:?}");
    }
}
