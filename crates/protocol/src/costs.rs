//! The measured costs of the parts of a round on one machine, which predict the speed of each draft length.
//!
//! Invariant: all values are microseconds of measured time, finite and not negative if [`Costs::is_usable`] is true.
//! The engine measures them.

use serde::{Deserialize, Serialize};

/// Measured times of one machine, model and context, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Costs {
    /// T(m): one target pass over m rows, all logits computed; index 0 is m = 1.
    pub verify_us: Vec<f64>,
    /// d: one drafted token; of a block drafter what each token adds to the pass that drafts all of them.
    pub draft_us: f64,
    /// b: a block drafter's pass in a round that drafts, apart from its tokens; 0 for drafters that run a pass a token.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub draft_pass_us: f64,
    /// Time that the drafter needs to catch up on one token that was committed while it did not draft.
    #[serde(default)]
    #[cfg_attr(test, schemars(transform = super::schema::added_later))]
    pub settle_us: f64,
    /// o: time of a round outside model passes.
    pub overhead_us: f64,
}

impl Costs {
    /// Whether one row was timed, and all values are finite and not negative.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        let fine = |x: &f64| x.is_finite() && *x >= 0.0;
        let rest = [self.draft_us, self.draft_pass_us, self.settle_us, self.overhead_us];
        self.verify_us.first().is_some_and(|t| *t > 0.0) && self.verify_us.iter().chain(&rest).all(fine)
    }

    /// Longest draft whose verification was timed.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.verify_us.len().saturating_sub(1)
    }

    /// Time to draft k tokens in microseconds: `b + k · d`, and 0 for none.
    #[must_use]
    pub fn drafting_us(&self, draft_len: usize) -> f64 {
        let pass_us = if draft_len > 0 { self.draft_pass_us } else { 0.0 };
        pass_us + draft_len as f64 * self.draft_us
    }

    /// Time of a round of k drafts in microseconds: `T(k + 1) + b + k · d + o`, without b for k = 0. None when k + 1
    /// rows were not timed.
    #[must_use]
    pub fn round_us(&self, draft_len: usize) -> Option<f64> {
        Some(self.verify_us.get(draft_len)? + self.drafting_us(draft_len) + self.overhead_us)
    }
}

/// Most drafters run no pass over a block, so their costs do not mention it.
fn is_zero(us: &f64) -> bool {
    *us == 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_adds_up_and_nonsense_is_not_usable() {
        let costs = Costs {
            verify_us: vec![100.0, 110.0],
            draft_us: 9.0,
            draft_pass_us: 0.0,
            settle_us: 1.0,
            overhead_us: 2.0,
        };
        assert_eq!((costs.round_us(0), costs.round_us(1), costs.round_us(2)), (Some(102.0), Some(121.0), None));
        assert!(costs.is_usable() && costs.longest() == 1);
        let block = Costs { draft_pass_us: 30.0, ..costs.clone() };
        assert_eq!((block.round_us(0), block.round_us(1)), (Some(102.0), Some(151.0)), "one pass a round that drafts");
        assert!(block.is_usable() && !Costs { draft_pass_us: f64::NAN, ..costs.clone() }.is_usable());
        assert!(!Costs::default().is_usable());
        assert!(!Costs { draft_us: f64::NAN, ..costs.clone() }.is_usable());
        assert!(!Costs { verify_us: vec![100.0, -1.0], ..costs }.is_usable());
    }
}
