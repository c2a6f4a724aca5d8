//! How often copies and drafts of a model are right, learned from this session's rounds over what was measured before.
//!
//! Invariant: every chance lies in [0, 1] and depends only on committed tokens and what was predicted for them.

/// Shortest match of each class.
const CLASSES: [usize; 8] = [1, 2, 3, 4, 6, 9, 16, 32];
/// Weight of what was measured before, in observations.
const PRIOR_WEIGHT: f64 = 12.0;
/// Factor by which counts fade with each observation of the same class: about the last 100 count.
const KEEP: f64 = 0.99;
/// Chance that a model's next draft is right, before the first observation.
const MODEL_GUESS: f64 = 0.65;
/// Weight of the assumption that a model's probabilities are right, in right drafts.
const TRUST_WEIGHT: f64 = 6.0;
/// How much of its probability a model's draft keeps if a copy differs, before the first observation.
const DIFFERING_TRUST: f64 = 0.8;

/// What a model says of the copied token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::speculate::drafter) enum View {
    /// It was not asked.
    Unknown,
    /// It is its most probable token.
    Agrees,
    /// Another token is.
    Differs,
}

/// Chances by class of a match, measured in answers to prompts that no test uses (default model, 160 tokens, greedy; most
/// of them general, a third copying).
const PRIOR: [[f64; CLASSES.len()]; 3] = [
    [0.22, 0.50, 0.62, 0.71, 0.80, 0.90, 0.97, 0.97],
    [0.70, 0.81, 0.81, 0.92, 0.92, 0.96, 0.99, 0.99],
    [0.05, 0.14, 0.25, 0.32, 0.38, 0.62, 0.80, 0.82],
];

/// A fading share.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    right: f64,
    seen: f64,
}

impl Share {
    fn count(&mut self, right: bool, seen: f64) {
        self.right = self.right * KEEP + f64::from(u8::from(right));
        self.seen = self.seen * KEEP + seen;
    }

    fn with(self, guess: f64, weight: f64) -> f64 {
        ((self.right + guess * weight) / (self.seen + weight)).clamp(0.0, 1.0)
    }
}

/// Chances of this session.
#[derive(Clone, Debug, Default)]
pub(in crate::speculate::drafter) struct Odds {
    copies: [[Share; CLASSES.len()]; 3],
    model: Share,
    /// Right drafts of a model among what its probabilities promised; second: where a copy differed.
    trust: [Share; 2],
}

impl Odds {
    /// The chance that the token after a match of `len` tokens is right.
    pub(in crate::speculate::drafter) fn copy(&self, len: usize, view: View) -> f64 {
        class(len)
            .map_or(0.0, |class| self.copies[view as usize][class].with(PRIOR[view as usize][class], PRIOR_WEIGHT))
    }

    /// The chance that a model's draft with this probability is right.
    pub(in crate::speculate::drafter) fn draft(&self, q: f32, differs: bool) -> f64 {
        let usual = if differs { DIFFERING_TRUST } else { 1.0 };
        let Share { right, seen } = self.trust[usize::from(differs)];
        (f64::from(q) * (right + usual * TRUST_WEIGHT) / (seen + TRUST_WEIGHT)).clamp(0.0, 1.0)
    }

    /// The chance that a model's draft is right which is not made yet.
    pub(in crate::speculate::drafter) fn next_draft(&self) -> f64 {
        self.model.with(MODEL_GUESS, PRIOR_WEIGHT)
    }

    /// Takes whether the token after a match of `len` tokens was right.
    pub(in crate::speculate::drafter) fn copied(&mut self, len: usize, view: View, right: bool) {
        if let Some(class) = class(len) {
            self.copies[view as usize][class].count(right, 1.0);
        }
    }

    /// Takes whether a model's draft with this probability was right.
    pub(in crate::speculate::drafter) fn drafted(&mut self, q: f32, differs: bool, right: bool) {
        self.model.count(right, 1.0);
        if q.is_finite() {
            self.trust[usize::from(differs)].count(right, f64::from(q));
        }
    }
}

/// The class of a match; none for an empty one.
fn class(len: usize) -> Option<usize> {
    CLASSES.iter().rposition(|least| len >= *least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_begin_as_measured_and_follow_the_session() {
        let mut odds = Odds::default();
        assert_eq!(odds.copy(0, View::Unknown), 0.0);
        assert!(
            (odds.copy(5, View::Unknown) - PRIOR[0][3]).abs() < 1e-9
                && (odds.copy(500, View::Agrees) - 0.99).abs() < 1e-9
        );
        for view in [View::Unknown, View::Agrees, View::Differs] {
            assert!(PRIOR[view as usize].is_sorted(), "longer matches are right more often");
        }
        (0..200).for_each(|_| odds.copied(5, View::Unknown, false));
        assert!(odds.copy(5, View::Unknown) < 0.15 && odds.copy(6, View::Unknown) > 0.7, "each class for itself");
        (0..400).for_each(|_| odds.copied(5, View::Unknown, true));
        assert!(odds.copy(5, View::Unknown) > 0.85, "the past fades");
    }

    #[test]
    fn a_model_that_promises_too_much_is_trusted_less() {
        let mut odds = Odds::default();
        assert!(odds.draft(0.9, true) < odds.draft(0.9, false));
        (0..200).for_each(|round| odds.drafted(0.9, false, round % 3 == 0));
        assert!((odds.draft(0.9, false) - 0.34).abs() < 0.06, "{}", odds.draft(0.9, false));
        assert!((odds.next_draft() - 0.36).abs() < 0.06, "{}", odds.next_draft());
        odds.drafted(f32::NAN, true, true);
        assert!(odds.draft(1.0, true) <= 1.0 && odds.draft(f32::NAN, true).is_nan() == f32::NAN.is_nan());
    }
}
