//! Chi-square tests of counted outcomes.

/// How far above the mean of a standard normal distribution a value lies that chance exceeds once in 10,000 times.
pub const ONCE_IN_10_000: f64 = 3.719;

/// The same for once in a million times.
pub const ONCE_IN_A_MILLION: f64 = 4.753;

/// The statistic of a test.
#[derive(Clone, Copy, Debug)]
pub struct ChiSquare {
    pub statistic: f64,
    /// Degrees of freedom.
    pub freedom: f64,
}

impl ChiSquare {
    /// Of counts against those that a distribution lets expect. Outcomes that are expected less than five times share a
    /// cell.
    pub fn against(cells: impl Iterator<Item = (f64, f64)>) -> Self {
        let (mut statistic, mut cell_count, mut rare) = (0.0, 0.0, (0.0, 0.0));
        let mut add = |(count, expected): (f64, f64)| {
            statistic += (count - expected).powi(2) / expected;
            cell_count += 1.0;
        };
        for (count, expected) in cells {
            if expected < 5.0 {
                rare = (rare.0 + count, rare.1 + expected);
            } else {
                add((count, expected));
            }
        }
        if rare.1 > 0.0 {
            add(rare);
        }
        Self { statistic, freedom: cell_count - 1.0 }
    }

    /// Of two samples of the same size. Outcomes that both together have less than ten times do not count.
    pub fn of_two(cells: impl Iterator<Item = (f64, f64)>) -> Self {
        let (mut statistic, mut freedom) = (0.0, -1.0);
        for (a, b) in cells.filter(|(a, b)| a + b >= 10.0) {
            statistic += (a - b).powi(2) / (a + b);
            freedom += 1.0;
        }
        Self { statistic, freedom }
    }

    /// Whether chance gives a larger statistic less often than `rarity` says, by the cube of Wilson and Hilferty (1931).
    pub fn exceeds(self, rarity: f64) -> bool {
        let variance = 2.0 / (9.0 * self.freedom);
        self.statistic > self.freedom * (1.0 - variance + rarity * variance.sqrt()).powi(3)
    }
}
