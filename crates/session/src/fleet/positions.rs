//! Acceptance by position, from sums: servers publish how many drafts were accepted at each position, and of drafted ones
//! only the sum.
//!
//! Of the steps that drafted, n_i drafted at least i + 1 tokens. The n_i do not rise, n_0 is the number of steps, their sum
//! is the number of drafted tokens, and n_i is at least the number accepted there. Where all steps drafted alike this gives
//! n_i; else it gives limits. Invariant: 0 ≤ low ≤ high ≤ 1.

use serde::{Deserialize, Serialize};

/// Longest draft that is thought of where drafts are longer than the published positions.
const LONGEST: u64 = 255;

/// The share of drafts at a position that were accepted, between two limits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// At least so much.
    pub low: f64,
    /// At most so much.
    pub high: f64,
}

impl Share {
    /// The share, if it is known to a per cent.
    #[must_use]
    pub fn exact(&self) -> Option<f64> {
        (self.high - self.low < 0.01).then(|| f64::midpoint(self.low, self.high))
    }
}

/// Of each position, as far as drafts are known to reach.
pub(super) fn shares(accepted: &[u64], steps: u64, drafted: u64) -> Vec<Share> {
    if steps == 0 || drafted < steps {
        return Vec::new();
    }
    let published = accepted.len() as u64;
    let longest = if drafted <= published.saturating_mul(steps) { published } else { LONGEST };
    let after = |at: usize| accepted[at + 1..].iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
    let share = |at: usize| {
        let (index, own) = (at as u64, accepted[at]);
        let most = match index {
            0 => steps,
            // n_0 is known, and n_1 to n_i are at least n_i
            _ => (drafted.saturating_sub(steps).saturating_sub(after(at)) / index).min(steps),
        };
        let rest = drafted.saturating_sub(index.saturating_mul(steps));
        let least = rest.div_ceil(longest.saturating_sub(index).max(1)).max(own).min(steps);
        let least = if index == 0 { steps } else { least };
        let ratio = |whole: u64| if whole == 0 { 0.0 } else { (own as f64 / whole as f64).min(1.0) };
        let (low, high) = (ratio(most.max(least)), ratio(least));
        (least > 0 || most > 0).then_some(Share { low: low.min(high), high })
    };
    (0..accepted.len()).map_while(share).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn drafts_of_one_length_give_the_shares_themselves() {
        let found = shares(&[10, 9, 7, 4], 10, 40);
        assert!(found.iter().all(|share| share.low == share.high), "{found:?}");
        assert_eq!(found.iter().map(|share| share.low).collect::<Vec<_>>(), [1.0, 0.9, 0.7, 0.4]);
        assert_eq!(shares(&[1, 1], 0, 0), []);
    }

    #[test]
    fn a_position_that_few_drafts_reached_is_not_blamed_for_the_others() {
        // nine steps drafted one token, one drafted four and had all of them accepted
        let found = shares(&[10, 1, 1, 1], 10, 13);
        assert_eq!((found[0].low, found[3].high), (1.0, 1.0));
        assert_eq!(found[3].exact(), Some(1.0), "{found:?}");
    }

    proptest! {
        #[test]
        fn the_limits_hold_the_true_share(steps in prop::collection::vec((1_usize..9).prop_flat_map(|d| (Just(d), 0..=d)), 1..60)) {
            let longest = steps.iter().map(|(drafted, _)| *drafted).max().unwrap();
            let count = |at: usize, of: fn(&(usize, usize)) -> usize| steps.iter().filter(|step| of(step) > at).count() as u64;
            let accepted: Vec<u64> = (0..longest).map(|at| count(at, |step| step.1)).collect();
            let drafted = steps.iter().map(|step| step.0 as u64).sum();
            let found = shares(&accepted, steps.len() as u64, drafted);
            prop_assert_eq!(found.len(), longest);
            for (at, share) in found.iter().enumerate() {
                let truth = accepted[at] as f64 / count(at, |step| step.0) as f64;
                prop_assert!(share.low - 1e-9 <= truth && truth <= share.high + 1e-9, "{at}: {share:?} {truth}");
            }
        }

        #[test]
        fn any_counts_give_shares(accepted in prop::collection::vec(0_u64..1 << 40, 0..9), steps in 0_u64..1 << 40, drafted in 0_u64..1 << 40) {
            for share in shares(&accepted, steps, drafted) {
                prop_assert!(0.0 <= share.low && share.low <= share.high && share.high <= 1.0, "{share:?}");
            }
        }
    }
}
