//! Estimates how often drafts are accepted, by position, with exponentially fading counts.
//!
//! There are two memories per position: a quick one follows the current text, and a slow one follows the drafter and is
//! used where the quick one has few observations. If the drafter reports probabilities, the quick memory counts the
//! mean of the predicted chance and the result, which varies less, so fewer observations suffice. Invariant: every
//! estimate lies in [0, 1] and depends only on the observations and their order.

use crate::MAX_DRAFT_LEN;

const POSITIONS: usize = MAX_DRAFT_LEN as usize;

/// Factor by which the quick memory fades with each observation: about the last 30 count.
const QUICK: f64 = 0.97;
/// The same factor for the slow memory: about the last 300 count.
const SLOW: f64 = 0.997;
/// Factor for both memories in a round that drafted nothing: without observations they become uncertain.
const UNSEEN: f64 = 0.995;
/// Weight of the slow memory in the quick one's estimate, in observations.
const SLOW_WEIGHT: f64 = 10.0;
/// The same weight if the drafter reports probabilities.
const SLOW_WEIGHT_WITH_Q: f64 = 3.0;
/// Weight of a guess in the slow memory's estimate, in observations.
const GUESS_WEIGHT: f64 = 2.0;
/// Guess for the first position, before the first draft.
const FIRST_GUESS: f64 = 0.5;
/// Guess for a later position, as a factor of the position before it.
const NEXT_GUESS: f64 = 0.9;

/// Fading counts of one kind of event.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Share {
    hits: f64,
    seen: f64,
}

impl Share {
    fn count(&mut self, hit: f64, keep: f64) {
        self.hits = self.hits * keep + hit;
        self.seen = self.seen * keep + 1.0;
    }

    fn fade(&mut self, keep: f64) {
        self.hits *= keep;
        self.seen *= keep;
    }

    /// The share, with a guess that has the weight of `weight` observations.
    fn estimate(&self, guess: f64, weight: f64) -> f64 {
        (self.hits + guess * weight) / (self.seen + weight)
    }
}

/// Acceptance by position of a draft.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Acceptance {
    quick: [Share; POSITIONS],
    slow: [Share; POSITIONS],
    offered: [Share; POSITIONS],
}

impl Acceptance {
    /// Takes a round that asked for `asked` drafts, got `drafted` and accepted `accepted` of them. `promised` contains
    /// each draft's predicted chance of acceptance, if known. A position without a draft counts as not accepted if all
    /// drafts before it were accepted.
    pub(super) fn observe(&mut self, asked: usize, drafted: usize, accepted: usize, promised: &[Option<f64>]) {
        if asked == 0 {
            self.quick.iter_mut().chain(&mut self.slow).for_each(|share| share.fade(UNSEEN));
        }
        for i in 0..asked.min(POSITIONS) {
            self.offered[i].count(one_if(drafted > i), QUICK);
            if accepted >= i {
                let promised = promised.get(i).copied().flatten().filter(|_| drafted > i);
                let result = one_if(accepted > i);
                self.quick[i].count(promised.map_or(result, |chance| (chance + result) / 2.0), QUICK);
                self.slow[i].count(result, SLOW);
            }
        }
    }

    /// Clears the quick memory for the next text.
    pub(super) fn begin_answer(&mut self) {
        self.quick = Default::default();
    }

    /// `a_i` for i = 1, 2, …: the share of drafts accepted at a position if all before it were, plus `hope` standard
    /// errors. `has_q`: whether the drafter reports probabilities.
    pub(super) fn by_position(&self, hope: f64, has_q: bool) -> [f64; POSITIONS] {
        let weight = if has_q { SLOW_WEIGHT_WITH_Q } else { SLOW_WEIGHT };
        let mut guess = FIRST_GUESS;
        let mut estimates = [0.0; POSITIONS];
        for (i, estimate) in estimates.iter_mut().enumerate() {
            let slow = self.slow[i].estimate(guess, GUESS_WEIGHT);
            let mean = self.quick[i].estimate(slow, weight);
            guess = slow * NEXT_GUESS;
            // one observation of each outcome is added, so that a share of 0 has an error above 0
            let seen = self.quick[i].seen + weight.min(self.slow[i].seen);
            let smoothed = (mean * seen + 1.0) / (seen + 2.0);
            let error = (smoothed * (1.0 - smoothed) / (seen + 2.0)).sqrt();
            *estimate = (mean + hope * error).clamp(0.0, 1.0);
        }
        estimates
    }

    /// Mean number of drafts of a round, for k = 0, 1, 2, … Without observations a position is assumed to get a draft
    /// `next` times as often as the one before it.
    pub(super) fn drafted(&self, next: f64) -> [f64; POSITIONS + 1] {
        let mut sums = [0.0; POSITIONS + 1];
        let mut guess = 1.0;
        for (i, share) in self.offered.iter().enumerate() {
            let offered = share.estimate(guess, GUESS_WEIGHT);
            sums[i + 1] = sums[i] + offered;
            guess = offered * next;
        }
        sums
    }
}

fn one_if(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_follow_the_counts_and_hope_raises_them() {
        let mut acceptance = Acceptance::default();
        for round in 0..400 {
            acceptance.observe(3, 3, if round % 2 == 0 { 2 } else { 0 }, &[]);
        }
        let mean = acceptance.by_position(0.0, false);
        assert!((mean[0] - 0.5).abs() < 0.03 && mean[1] > 0.97 && mean[2] < 0.03, "{mean:?}");
        let hope = acceptance.by_position(2.0, false);
        assert!((0..4).all(|i| hope[i] > mean[i] || mean[i] == 1.0) && hope.iter().all(|a| *a <= 1.0));
        assert!(hope[2] < 0.2, "many observations leave a small error: {}", hope[2]);
        assert!((acceptance.drafted(1.0)[3] - 3.0).abs() < 1e-9);
    }

    #[test]
    fn drafts_that_were_not_offered_are_not_accepted() {
        let mut acceptance = Acceptance::default();
        (0..100).for_each(|_| acceptance.observe(2, 0, 0, &[]));
        assert!(acceptance.by_position(0.0, false)[0] < 0.02);
        assert!(acceptance.drafted(1.0)[2] < 0.2, "{:?}", acceptance.drafted(1.0));
    }

    #[test]
    fn the_past_fades() {
        let mut acceptance = Acceptance::default();
        (0..200).for_each(|_| acceptance.observe(1, 1, 1, &[]));
        (0..60).for_each(|_| acceptance.observe(1, 1, 0, &[]));
        assert!(acceptance.by_position(0.0, false)[0] < 0.35, "{}", acceptance.by_position(0.0, false)[0]);
    }

    #[test]
    fn estimates_follow_a_text_sooner_if_the_drafter_reports_probabilities() {
        let mut acceptance = Acceptance::default();
        (0..200).for_each(|round| acceptance.observe(1, 1, round % 2, &[Some(0.5)]));
        acceptance.begin_answer();
        // an improbable draft that is accepted by chance, and one that was discarded
        acceptance.observe(1, 1, 1, &[Some(0.1)]);
        acceptance.observe(1, 0, 0, &[Some(0.9)]);
        let (with_q, without) = (acceptance.by_position(0.0, true)[0], acceptance.by_position(0.0, false)[0]);
        assert!((with_q - 0.41).abs() < 0.02, "three of 0.5, one of (0.1 + 1) / 2 and one of 0: {with_q}");
        assert!((without - 0.46).abs() < 0.02, "ten of 0.5 and the same two: {without}");
    }
}
