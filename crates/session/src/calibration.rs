//! How well the drafter's own probability foretells that the target accepts a draft.
//!
//! Invariant: only drafts that were tested count, and only those whose q the drafter stated; a copy has none.

use super::round::Round;
use draftscope_protocol::Outcome;

/// Number of ranges of q, all equally wide.
pub const Q_RANGES: usize = 5;

/// Tested drafts whose q lies in a range.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QRange {
    /// Drafts compared with the target.
    pub tested: u64,
    /// Those that it accepted.
    pub accepted: u64,
    sum: f64,
}

impl QRange {
    /// Mean q of its drafts, 0 to 1: the share that would be accepted if q foretold acceptance.
    #[must_use]
    pub fn mean_q(&self) -> Option<f64> {
        (self.tested > 0).then(|| self.sum / self.tested as f64)
    }

    /// Accepted ÷ tested.
    #[must_use]
    pub fn accepted_share(&self) -> Option<f64> {
        (self.tested > 0).then(|| self.accepted as f64 / self.tested as f64)
    }
}

/// Tested drafts by their q: range `i` is from `i ÷ Q_RANGES` on, the last one contains 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Calibration {
    ranges: [QRange; Q_RANGES],
}

impl Calibration {
    /// The ranges, from the lowest q.
    #[must_use]
    pub fn ranges(&self) -> &[QRange; Q_RANGES] {
        &self.ranges
    }

    /// Drafts in all ranges.
    #[must_use]
    pub fn tested(&self) -> u64 {
        self.ranges.iter().map(|range| range.tested).sum()
    }

    /// Adds the drafts of a complete round.
    pub(super) fn add(&mut self, round: &Round) {
        for (index, draft) in
            round.drafts.iter().enumerate().filter(|(_, draft)| draft.copied.is_none() && !draft.forced)
        {
            let is_tested = matches!(round.outcome(index), Some(Outcome::Accepted | Outcome::Rejected));
            let Some(q) = draft.q.filter(|q| is_tested && (0.0..=1.0).contains(q)) else { continue };
            let range = &mut self.ranges[((q * Q_RANGES as f32) as usize).min(Q_RANGES - 1)];
            range.tested += 1;
            range.accepted += u64::from(round.outcome(index) == Some(Outcome::Accepted));
            range.sum += f64::from(q);
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (sum, part) in self.ranges.iter_mut().zip(&other.ranges) {
            sum.tested = sum.tested.saturating_add(part.tested);
            sum.accepted = sum.accepted.saturating_add(part.accepted);
            sum.sum += part.sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Script;
    use crate::fixture::fold;
    use draftscope_protocol::Lane;

    #[test]
    fn only_tested_drafts_count_in_the_range_of_their_q() {
        let mut script = Script::prompted("hi", "Hello");
        script.round(&[(" a", 1.0), (" b", 0.45)], &[(" a", 0.9), (" b", 0.8), (" c", 0.7)]);
        script.round(&[(" a", 0.55), (" b", 0.9)], &[(" x", 0.9), (" b", 0.8), (" c", 0.7)]);
        let session = fold(&script.events);
        let stats = session.stats(Lane::Speculative);
        let counts = stats.calibration().ranges().map(|range| (range.tested, range.accepted));
        assert_eq!(counts, [(0, 0), (0, 0), (2, 1), (0, 0), (1, 1)], "a draft after a rejected one was not tested");
        let [.., middle, _, last] = stats.calibration().ranges();
        assert!((middle.mean_q().unwrap() - 0.5).abs() < 1e-6 && middle.accepted_share() == Some(0.5));
        assert_eq!((last.mean_q(), stats.calibration().tested()), (Some(1.0), 3));
    }
}
