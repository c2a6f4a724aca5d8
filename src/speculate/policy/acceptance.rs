//! How often drafts are accepted, by position, with the past fading.
//!
//! Two memories per position: a quick one follows the text at hand, a slow one knows the drafter and
//! stands in where the quick one has seen little. Where a drafter says how probable its drafts are, the
//! quick one takes the mean of what that promises and what came of it, which varies less, and is believed
//! sooner. Invariant: every estimate lies in [0, 1] and depends on nothing but what was observed, in order.

use crate::protocol::MAX_DRAFT_LEN;

const POSITIONS: usize = MAX_DRAFT_LEN as usize;

/// What a count keeps of itself at the next one: the last 30 or so weigh.
const QUICK: f64 = 0.97;
/// The same for the slow memory: the last 300 or so.
const SLOW: f64 = 0.997;
/// What both memories keep over a round that drafted nothing: what is not looked at gets uncertain.
const UNSEEN: f64 = 0.995;
/// Observations that the slow memory counts for in the quick one's estimate.
const SLOW_WEIGHT: f64 = 10.0;
/// The same where the drafter's probabilities are known.
const INFORMED_WEIGHT: f64 = 3.0;
/// Observations that a guess counts for in the slow memory's estimate.
const GUESS_WEIGHT: f64 = 2.0;
/// Guess for the first position, before anything was drafted.
const FIRST_GUESS: f64 = 0.5;
/// Guess for a later position as a part of the one before it.
const NEXT_GUESS: f64 = 0.9;

/// Faded counts of one kind of event.
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

    /// The share, with a guess that counts for `weight` observations.
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
    /// A round that asked for `asked` drafts, got `drafted` and accepted `accepted` of them, each with the chance
    /// that was `promised`, where something was. A position that was reached but not offered counts as not
    /// accepted there.
    pub(super) fn observe(&mut self, asked: usize, drafted: usize, accepted: usize, promised: &[Option<f64>]) {
        if asked == 0 {
            self.quick.iter_mut().chain(&mut self.slow).for_each(|share| share.fade(UNSEEN));
        }
        for i in 0..asked.min(POSITIONS) {
            self.offered[i].count(one_if(drafted > i), QUICK);
            if accepted >= i {
                let promised = promised.get(i).copied().flatten().filter(|_| drafted > i);
                let came = one_if(accepted > i);
                self.quick[i].count(promised.map_or(came, |chance| (chance + came) / 2.0), QUICK);
                self.slow[i].count(came, SLOW);
            }
        }
    }

    /// Another text begins: the quick memory knows nothing of it.
    pub(super) fn begin_answer(&mut self) {
        self.quick = Default::default();
    }

    /// `a_i` for i = 1, 2, …: the share of drafts accepted at a position when all before it were. With
    /// `hope` above 0, as large as it may be by that many standard errors. `informed`: whether the drafter gives
    /// probabilities.
    pub(super) fn by_position(&self, hope: f64, informed: bool) -> [f64; POSITIONS] {
        let weight = if informed { INFORMED_WEIGHT } else { SLOW_WEIGHT };
        let mut guess = FIRST_GUESS;
        let mut estimates = [0.0; POSITIONS];
        for (i, estimate) in estimates.iter_mut().enumerate() {
            let known = self.slow[i].estimate(guess, GUESS_WEIGHT);
            let mean = self.quick[i].estimate(known, weight);
            guess = known * NEXT_GUESS;
            // one of each outcome added, so that a share of 0 is not taken for certain
            let seen = self.quick[i].seen + weight.min(self.slow[i].seen);
            let smoothed = (mean * seen + 1.0) / (seen + 2.0);
            let error = (smoothed * (1.0 - smoothed) / (seen + 2.0)).sqrt();
            *estimate = (mean + hope * error).clamp(0.0, 1.0);
        }
        estimates
    }

    /// Drafts that a round of k is given on average, for k = 0, 1, 2, … Where nothing was seen, a position is
    /// taken to be offered `next` times as often as the one before it.
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
    fn estimates_follow_the_counts_and_hope_lies_above() {
        let mut acceptance = Acceptance::default();
        for round in 0..400 {
            acceptance.observe(3, 3, if round % 2 == 0 { 2 } else { 0 }, &[]);
        }
        let mean = acceptance.by_position(0.0, false);
        assert!((mean[0] - 0.5).abs() < 0.03 && mean[1] > 0.97 && mean[2] < 0.03, "{mean:?}");
        let hope = acceptance.by_position(2.0, false);
        assert!((0..4).all(|i| hope[i] > mean[i] || mean[i] == 1.0) && hope.iter().all(|a| *a <= 1.0));
        assert!(hope[2] < 0.2, "what was seen often leaves little hope: {}", hope[2]);
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
    fn a_text_is_known_sooner_where_the_drafter_says_how_sure_it_is() {
        let mut acceptance = Acceptance::default();
        (0..200).for_each(|round| acceptance.observe(1, 1, round % 2, &[Some(0.5)]));
        acceptance.begin_answer();
        // a draft of little promise that is accepted by chance, and one that is left out
        acceptance.observe(1, 1, 1, &[Some(0.1)]);
        acceptance.observe(1, 0, 0, &[Some(0.9)]);
        let (informed, uninformed) = (acceptance.by_position(0.0, true)[0], acceptance.by_position(0.0, false)[0]);
        assert!((informed - 0.41).abs() < 0.02, "three of 0.5, one of (0.1 + 1) / 2 and one of 0: {informed}");
        assert!((uninformed - 0.46).abs() < 0.02, "ten of 0.5 and the same two: {uninformed}");
    }
}
