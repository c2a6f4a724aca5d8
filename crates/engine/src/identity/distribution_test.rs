//! Permutation tests of whether two samples of token sequences follow one distribution.
//!
//! One test for the token at each position and one for the whole sequence. The statistic is the two-sample chi-square.
//! Its distribution under equality comes from shuffling the sequences between both samples, so the tests assume nothing
//! about the number of tokens or how rare they are. The p-values are corrected for several tests (Holm, 1979).
//! Invariant: pure and reproducible; the same samples give the same figures.

use std::collections::BTreeMap;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde::Serialize;

use draftscope_protocol::TokenId;

/// Chance of a false alarm over all tests together.
pub const LEVEL: f64 = 0.01;
/// Shuffles of one test.
const SHUFFLES: usize = 1999;
/// Repetitions for each point of a power curve.
const TRIALS: usize = 400;
/// Shifts (total variation distances) for which the power is computed.
const SHIFTS: [f64; 4] = [0.05, 0.1, 0.15, 0.2];
/// Outcomes with fewer occurrences in both samples together share one cell.
const RARE: usize = 5;

/// One test.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Test {
    /// The compared part: `token 1`, `token 2`, …, `sequence`.
    pub what: String,
    /// Distinct outcomes, rare ones counted as one.
    pub outcomes: usize,
    /// Two-sample chi-square.
    pub statistic: f64,
    /// Share of shuffles whose statistic is at least as large; the samples themselves count as one shuffle.
    pub p_value: f64,
    /// The p-value corrected for the number of tests.
    pub corrected: f64,
}

/// Chance of detecting another distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Power {
    /// Total variation distance of the other distribution from this one.
    pub shift: f64,
    /// Chance that samples of this size give a p-value below [`LEVEL`].
    pub power: f64,
}

/// Result of comparing two samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Sequences per sample.
    pub samples: [usize; 2],
    /// All tests.
    pub tests: Vec<Test>,
    /// Whether no test rejects equality at [`LEVEL`].
    pub consistent: bool,
    /// Power of the test of the token with the most outcomes.
    pub power: Vec<Power>,
}

/// Compares two samples of sequences of equal length.
#[must_use]
pub fn compare(a: &[Vec<TokenId>], b: &[Vec<TokenId>]) -> Comparison {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let len = a.iter().chain(b).map(Vec::len).min().unwrap_or(0);
    let mut views: Vec<(String, Vec<usize>)> =
        (0..len).map(|i| (format!("token {}", i + 1), cells(a.iter().chain(b).map(|s| s[i..=i].to_vec())))).collect();
    if len > 1 {
        views.push(("sequence".to_owned(), cells(a.iter().chain(b).map(|s| s[..len].to_vec()))));
    }
    let mut tests: Vec<Test> = views.iter().map(|(what, cells)| test(what, cells, a.len(), &mut rng)).collect();
    holm(&mut tests);
    let widest = views.iter().zip(&tests).filter(|((what, _), _)| what != "sequence");
    let widest = widest.max_by_key(|(_, test)| test.outcomes).map(|((_, cells), _)| cells);
    Comparison {
        samples: [a.len(), b.len()],
        consistent: tests.iter().all(|test| test.corrected >= LEVEL),
        power: widest.map(|cells| power(cells, a.len(), tests.len(), &mut rng)).unwrap_or_default(),
        tests,
    }
}

/// Numbers outcomes from 0; rare ones share a number.
fn cells(outcomes: impl Iterator<Item = Vec<TokenId>>) -> Vec<usize> {
    let outcomes: Vec<_> = outcomes.collect();
    let mut counts = BTreeMap::<&[TokenId], usize>::new();
    outcomes.iter().for_each(|outcome| *counts.entry(outcome).or_default() += 1);
    let numbers: BTreeMap<_, _> = counts.iter().filter(|(_, n)| **n >= RARE).map(|(o, _)| *o).zip(1..).collect();
    outcomes.iter().map(|outcome| numbers.get(outcome.as_slice()).copied().unwrap_or(0)).collect()
}

/// Two-sample chi-square of the first `n` cells against the rest.
fn statistic(cells: &[usize], n: usize) -> f64 {
    let width = cells.iter().max().map_or(0, |most| most + 1);
    let mut counts = vec![[0.0; 2]; width];
    for (i, cell) in cells.iter().enumerate() {
        counts[*cell][usize::from(i >= n)] += 1.0;
    }
    let sizes = [n as f64, (cells.len() - n) as f64];
    let scale = [(sizes[1] / sizes[0]).sqrt(), (sizes[0] / sizes[1]).sqrt()];
    let seen = counts.iter().filter(|[x, y]| x + y > 0.0);
    seen.map(|[x, y]| (x * scale[0] - y * scale[1]).powi(2) / (x + y)).sum()
}

fn test(what: &str, cells: &[usize], n: usize, rng: &mut ChaCha8Rng) -> Test {
    let own = statistic(cells, n);
    let beyond = null(cells, n, rng, SHUFFLES).iter().filter(|s| **s >= own - 1e-9).count();
    let mut outcomes = cells.to_vec();
    outcomes.sort_unstable();
    outcomes.dedup();
    let p_value = (beyond + 1) as f64 / (SHUFFLES + 1) as f64;
    Test { what: what.to_owned(), outcomes: outcomes.len(), statistic: own, p_value, corrected: p_value }
}

/// Statistics of shuffled samples.
fn null(cells: &[usize], n: usize, rng: &mut ChaCha8Rng, shuffles: usize) -> Vec<f64> {
    let mut cells = cells.to_vec();
    let mut shuffled = || {
        for i in (1..cells.len()).rev() {
            cells.swap(i, below(rng, i + 1));
        }
        statistic(&cells, n)
    };
    (0..shuffles).map(|_| shuffled()).collect()
}

/// Uniform in 0..n; the bias of 2⁻³² is of no consequence here.
fn below(rng: &mut ChaCha8Rng, n: usize) -> usize {
    ((u64::from(rng.next_u32()) * n as u64) >> 32) as usize
}

/// p-values that may be compared with [`LEVEL`] together.
fn holm(tests: &mut [Test]) {
    let mut order: Vec<usize> = (0..tests.len()).collect();
    order.sort_by(|a, b| tests[*a].p_value.total_cmp(&tests[*b].p_value));
    let mut largest: f64 = 0.0;
    for (rank, index) in order.iter().enumerate() {
        largest = largest.max(tests[*index].p_value * (tests.len() - rank) as f64).min(1.0);
        tests[*index].corrected = largest;
    }
}

/// Redraws both samples many times, the second from a distribution that has `shift` of its mass moved from the most
/// frequent outcome to a new one. Counts how often a test detects this at the level [`LEVEL`] ÷ `tests`.
fn power(cells: &[usize], n: usize, tests: usize, rng: &mut ChaCha8Rng) -> Vec<Power> {
    let mut null = null(cells, n, rng, SHUFFLES);
    null.sort_unstable_by(f64::total_cmp);
    let level = LEVEL / tests.max(1) as f64;
    let limit = null[(((1.0 - level) * null.len() as f64) as usize).min(null.len() - 1)];
    let most = most_frequent(cells);
    let mass = cells.iter().filter(|cell| **cell == most).count() as f64 / cells.len() as f64;
    let new = cells.iter().max().map_or(0, |cell| cell + 1);
    let curve = SHIFTS.iter().filter(|shift| **shift <= mass).map(|shift| {
        let noticed = (0..TRIALS).filter(|_| {
            let mut redrawn: Vec<usize> = (0..cells.len()).map(|_| cells[below(rng, cells.len())]).collect();
            for cell in redrawn[n..].iter_mut().filter(|cell| **cell == most) {
                if f64::from(rng.next_u32()) < shift / mass * f64::from(u32::MAX) {
                    *cell = new;
                }
            }
            statistic(&redrawn, n) > limit
        });
        Power { shift: *shift, power: noticed.count() as f64 / TRIALS as f64 }
    });
    curve.collect()
}

fn most_frequent(cells: &[usize]) -> usize {
    let mut counts = BTreeMap::<usize, usize>::new();
    cells.iter().for_each(|cell| *counts.entry(*cell).or_default() += 1);
    counts.into_iter().max_by_key(|(_, count)| *count).map_or(0, |(cell, _)| cell)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sequences of two tokens; the first is 0 with probability `p`, else 1 to 4.
    fn sample(seed: u64, n: usize, p: f64) -> Vec<Vec<TokenId>> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut token = || {
            let u = f64::from(rng.next_u32()) / f64::from(u32::MAX);
            if u < p { TokenId(0) } else { TokenId(1 + rng.next_u32() % 4) }
        };
        (0..n).map(|_| vec![token(), token()]).collect()
    }

    #[test]
    fn equal_distributions_are_consistent_and_false_alarms_are_rare() {
        let alarms = (0..60).filter(|i| !compare(&sample(2 * i, 200, 0.5), &sample(2 * i + 1, 200, 0.5)).consistent);
        assert!(alarms.count() <= 3, "more than 60 × 1 % with room for chance");
    }

    #[test]
    fn a_shifted_distribution_is_detected() {
        let found = compare(&sample(1, 400, 0.5), &sample(2, 400, 0.7));
        assert!(!found.consistent, "{found:?}");
        assert!(found.tests[0].p_value < 0.002 && found.tests[0].corrected >= found.tests[0].p_value);
    }

    #[test]
    fn power_rises_with_the_shift_and_the_sample() {
        let power = |n: usize| compare(&sample(3, n, 0.5), &sample(4, n, 0.5)).power;
        let (small, large) = (power(100), power(800));
        assert!(large.windows(2).all(|w| w[0].power <= w[1].power + 0.02), "{large:?}");
        assert!(large[1].power > small[1].power && large.last().unwrap().power > 0.95, "{small:?} {large:?}");
    }

    #[test]
    fn the_statistic_is_chi_square() {
        // counts 30, 20 against 20, 30: chi-square is 4
        let cells: Vec<usize> = [(0, 30), (1, 20), (0, 20), (1, 30)].iter().flat_map(|(c, n)| vec![*c; *n]).collect();
        assert!((statistic(&cells, 50) - 4.0).abs() < 1e-12);
        assert!(compare(&[], &[]).consistent);
    }
}
