//! A rate with its confidence interval.

use serde::Serialize;

/// Half width of the normal distribution's 95 % interval, in standard errors.
const Z: f64 = 1.959_963_984_540_054;

/// A share of trials with its 95 % confidence interval (Wilson, 1927), which is meaningful even for 0 of n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rate {
    /// Trials with the event.
    pub count: u64,
    /// All trials.
    pub trials: u64,
    /// count ÷ trials, 0 to 1; 0 without trials.
    pub rate: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Rate {
    /// The rate of `count` events in `trials` trials.
    #[must_use]
    pub fn of(count: u64, trials: u64) -> Self {
        if trials == 0 {
            return Self { high: 1.0, ..Self::default() };
        }
        let (n, p) = (trials as f64, count as f64 / trials as f64);
        let z2 = Z * Z;
        let middle = (p + z2 / (2.0 * n)) / (1.0 + z2 / n);
        let half = Z / (1.0 + z2 / n) * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
        let bound = |x: f64| if x < 1e-12 { 0.0 } else { x.min(1.0) };
        Self { count, trials, rate: p, low: bound(middle - half), high: bound(middle + half) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_wilsons() {
        // values from R: prop.test(x, n, correct = FALSE)$conf.int
        for (count, trials, low, high) in
            [(0, 10, 0.0, 0.277_533), (3, 20, 0.052_368, 0.360_419), (10, 10, 0.722_467, 1.0)]
        {
            let rate = Rate::of(count, trials);
            assert!((rate.low - low).abs() < 1e-5 && (rate.high - high).abs() < 1e-5, "{rate:?}");
        }
        assert_eq!((Rate::of(0, 0).low, Rate::of(0, 0).high), (0.0, 1.0));
    }
}
