//! Costs of a machine that changes its speed: what was measured at the start, corrected by what
//! rounds really take.
//!
//! A shared machine gets slower and faster as a whole, which does not change which k is best; what
//! matters is how widths compare at the same time. So each time is divided by the machine's speed of
//! that moment (the median of recent times, each relative to the start) before it corrects its own
//! width. Invariant: no clock in here, and no single outlier moves anything.

use crate::protocol::Costs;

/// Times that say how fast the machine is at the moment.
const SPEED_WINDOW: usize = 9;
/// Times that correct one width.
const WINDOW: usize = 15;
/// Votes of the measurement at the start in each correction.
const START_VOTES: usize = 3;
/// A correction beyond this factor is no change of speed but an error; it is cut off.
const MOST: f64 = 4.0;

/// The last few values.
#[derive(Clone, Debug, Default)]
struct Recent(Vec<f64>);

impl Recent {
    fn push(&mut self, value: f64, window: usize) {
        if value.is_finite() && value > 0.0 {
            self.0.push(value);
            if self.0.len() > window {
                self.0.remove(0);
            }
        }
    }

    /// Median with `votes` more values of 1.
    fn median(&self, votes: usize) -> f64 {
        let mut values = self.0.clone();
        values.resize(values.len() + votes, 1.0);
        values.sort_unstable_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(1.0)
    }
}

/// Costs at the start, and corrections.
#[derive(Clone, Debug)]
pub(super) struct CostModel {
    base: Costs,
    speed: Recent,
    verify: Vec<Recent>,
    draft: Recent,
    overhead: Recent,
}

impl CostModel {
    pub(super) fn new(base: Costs) -> Self {
        let verify = vec![Recent::default(); base.verify_us.len()];
        Self { base, speed: Recent::default(), verify, draft: Recent::default(), overhead: Recent::default() }
    }

    /// A target pass over `rows` rows took this long.
    pub(super) fn verified(&mut self, rows: usize, took_us: f64) {
        let Some(expected) = rows.checked_sub(1).and_then(|i| self.base.verify_us.get(i)) else {
            return;
        };
        let relative = took_us / expected;
        self.speed.push(relative, SPEED_WINDOW);
        let corrected = relative / self.speed.median(0);
        self.verify[rows - 1].push(corrected, WINDOW);
    }

    /// A drafted token took this long, as a mean over a round whose drafter had nothing to catch up on.
    pub(super) fn drafted(&mut self, took_us: f64) {
        let relative = took_us / self.base.draft_us.max(1.0);
        self.draft.push(relative / self.speed.median(0), WINDOW);
    }

    /// A round took this long outside model passes.
    pub(super) fn overhead(&mut self, took_us: f64) {
        let relative = took_us / self.base.overhead_us.max(1.0);
        self.overhead.push(relative / self.speed.median(0), WINDOW);
    }

    /// Costs as of now.
    pub(super) fn now(&self) -> Costs {
        let speed = self.speed.median(0);
        let corrected = |base: f64, recent: &Recent| base * speed * recent.median(START_VOTES).clamp(1.0 / MOST, MOST);
        Costs {
            verify_us: rising(self.base.verify_us.iter().zip(&self.verify).map(|(t, r)| corrected(*t, r)).collect()),
            draft_us: corrected(self.base.draft_us.max(1.0), &self.draft),
            settle_us: self.base.settle_us * speed,
            overhead_us: corrected(self.base.overhead_us.max(1.0), &self.overhead),
        }
    }
}

/// The nearest curve that never falls (pool adjacent violators): more rows cannot cost less, so what
/// looks like it is noise.
pub(crate) fn rising(curve: Vec<f64>) -> Vec<f64> {
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
        Costs { verify_us: vec![1000.0, 1100.0, 1200.0], draft_us: 90.0, settle_us: 10.0, overhead_us: 20.0 }
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
            model.drafted(180.0);
            model.overhead(40.0);
        }
        let now = model.now();
        for (got, want) in now.verify_us.iter().zip(base().verify_us) {
            assert!((got / want - 2.0).abs() < 1e-9);
        }
        assert!((now.draft_us - 180.0).abs() < 1e-9 && (now.overhead_us - 40.0).abs() < 1e-9);
        assert!((now.settle_us - 20.0).abs() < 1e-9);
    }

    #[test]
    fn a_width_that_got_dearer_than_the_others_is_corrected_and_an_outlier_is_not() {
        let mut model = CostModel::new(base());
        for _ in 0..12 {
            for _ in 0..4 {
                model.verified(1, 1000.0);
            }
            model.verified(2, 1650.0);
            model.verified(3, 1800.0);
        }
        model.verified(1, 90_000.0);
        let now = model.now().verify_us;
        assert!((now[1] / now[0] - 1.65).abs() < 0.01, "{now:?}");
        assert!((now[0] - 1000.0).abs() < 1.0);
    }
}
