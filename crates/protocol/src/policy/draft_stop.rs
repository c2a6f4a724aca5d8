//! The stop rule: a draft ends before the token whose verification, or drafting, would cost more than it is likely to
//! save.
//!
//! A drafter's probability of its own proposal predicts how likely the target is to accept it, before the target runs.
//! Let `R` be the chance that all drafts so far are accepted and `V` the time of a token at the expected speed. A draft
//! that is accepted with chance `a` saves `R · a · V`, and more if others follow. Its row costs `T(m + 1) − T(m)`, and
//! another draft costs `d`. Invariant: pure. Whether a token is proposed depends only on the distribution that it comes
//! from and on earlier proposals, never on the token itself, so every lossless rule stays lossless.

use super::worth::Worth;
use crate::Costs;

/// Chance of acceptance of a draft that is not made yet, before the first observation.
const NEXT_GUESS: f64 = 0.6;
/// Chance that it is proposed, before the first observation.
const NEXT_OFFERED: f64 = 0.8;
/// Weight of these guesses, in drafts.
const NEXT_WEIGHT: f64 = 20.0;
/// Weight of the assumption that the drafter's probabilities are right, in accepted drafts.
const TRUST_WEIGHT: f64 = 6.0;
/// Factor by which counts fade with each draft: about the last 100 count.
const KEEP: f64 = 0.99;

/// Largest share of drafts without a probability at which the drafter counts as one that reports probabilities.
const SILENT: f64 = 0.1;

/// How good the drafter's probabilities are: fading counts and sums.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Confidence {
    /// Accepted drafts among the tested ones with a probability.
    accepted: f64,
    /// Sum of the probabilities of these tested drafts.
    promised: f64,
    /// Drafts made after others, the proposed ones of these, and the sum of their probabilities.
    later: f64,
    later_offered: f64,
    later_sure: f64,
    /// Drafts with a probability and without one.
    spoken: f64,
    silent: f64,
}

impl Confidence {
    /// Takes a round in which the largest probability for draft `i` was `sure[i]`, and `dropped` drafts were discarded
    /// after them.
    pub(super) fn observe(&mut self, sure: &[Option<f32>], accepted: usize, dropped: usize) {
        if dropped > 0 && !sure.is_empty() {
            self.made_later(None);
        }
        for (i, sure) in sure.iter().enumerate() {
            self.spoken = self.spoken * KEEP + f64::from(u8::from(sure.is_some()));
            self.silent = self.silent * KEEP + f64::from(u8::from(sure.is_none()));
            let Some(sure) = sure.filter(|sure| sure.is_finite()) else {
                continue;
            };
            if i > 0 {
                self.made_later(Some(sure));
            }
            if i <= accepted {
                self.accepted = self.accepted * KEEP + f64::from(u8::from(i < accepted));
                self.promised = self.promised * KEEP + f64::from(sure);
            }
        }
    }

    fn made_later(&mut self, offered: Option<f32>) {
        self.later = self.later * KEEP + 1.0;
        self.later_offered = self.later_offered * KEEP + f64::from(u8::from(offered.is_some()));
        self.later_sure = self.later_sure * KEEP + f64::from(offered.unwrap_or(0.0));
    }

    /// The chance that a draft with this probability is accepted if those before it were.
    pub(super) fn chance(&self, q: f32) -> f64 {
        (f64::from(q) * self.trust()).min(1.0)
    }

    /// Whether the drafter reports a probability for nearly all its drafts.
    pub(super) fn has_probabilities(&self) -> bool {
        self.spoken > 0.0 && self.silent <= SILENT * (self.spoken + self.silent)
    }

    /// Accepted drafts ÷ the number that the drafter's probabilities predicted.
    fn trust(&self) -> f64 {
        (self.accepted + TRUST_WEIGHT) / (self.promised + TRUST_WEIGHT)
    }

    /// Chances of a draft after others that is not made yet.
    fn next(&self) -> Next {
        let sure = (self.later_sure + NEXT_GUESS * NEXT_WEIGHT) / (self.later + NEXT_WEIGHT);
        let offered = (self.later_offered + NEXT_OFFERED * NEXT_WEIGHT) / (self.later + NEXT_WEIGHT);
        Next { accepted: (sure * self.trust()).min(1.0), offered }
    }

    /// The stop rule for drafts of at most `longest` tokens with these costs, if a token takes `token_us` microseconds.
    pub(super) fn stop_rule(&self, costs: Costs, longest: usize, token_us: f64) -> DraftStopRule {
        DraftStopRule { confidence: *self, next: self.next(), costs, longest, token_us, alternatives: 1.0 }
    }
}

/// Decides where the drafts of a round end.
#[derive(Clone, Debug, PartialEq)]
pub struct DraftStopRule {
    costs: Costs,
    longest: usize,
    token_us: f64,
    confidence: Confidence,
    next: Next,
    /// Chance that an alternative is right ÷ its probability.
    alternatives: f64,
}

/// Chances of a draft that is not made yet.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Next {
    /// That its probability is high enough to be proposed.
    offered: f64,
    /// That it is proposed and accepted, if those before it are.
    accepted: f64,
}

impl DraftStopRule {
    /// The rule with this chance that an alternative is right, as a multiple of its probability.
    pub(super) fn trusting(self, alternatives: f64) -> Self {
        Self { alternatives, ..self }
    }

    /// The drafter's probability, 0 to 1, below which a draft after `made` others is not worth its row. The others are
    /// all accepted with chance `reach`.
    fn p_min(&self, made: usize, reach: f64) -> f32 {
        // with n more drafts after it: a · (1 + next + next² + …) tokens
        let needed = |more: MoreDrafts| more.cost_us / (self.token_us * reach * (1.0 + more.tokens));
        let none = MoreDrafts { tokens: 0.0, cost_us: 0.0 };
        let row_us = self.row_us(made);
        let choices = std::iter::once(none).chain(self.more_drafts(made + 1));
        let needs = choices.map(|more| needed(MoreDrafts { cost_us: more.cost_us + row_us, ..more }));
        let least = needs.fold(1.0, f64::min);
        (least / self.confidence.trust()).clamp(0.0, 1.0) as f32
    }

    /// Whether another draft after `made` others, all accepted with chance `reach`, is worth making.
    fn goes_on(&self, made: usize, reach: f64) -> bool {
        self.more_drafts(made).any(|more| self.token_us * reach * more.tokens > more.cost_us)
    }

    /// Gain and cost of 1, 2, … more drafts after `made` accepted ones.
    fn more_drafts(&self, made: usize) -> impl Iterator<Item = MoreDrafts> {
        let (mut chance, mut tokens, mut cost_us) = (1.0, 0.0, 0.0);
        (made..self.longest).map(move |at| {
            chance *= self.next.accepted;
            tokens += chance;
            cost_us += self.costs.draft_us + self.next.offered * self.row_us(at);
            MoreDrafts { tokens, cost_us }
        })
    }

    /// Cost of the row of a draft after `made` others, in microseconds; infinite if that width was not timed.
    fn row_us(&self, made: usize) -> f64 {
        match self.costs.verify_us.get(made..=made + 1) {
            Some([before, with]) => with - before,
            _ => f64::INFINITY,
        }
    }
}

/// A chain in progress that a [`DraftStopRule`] ends.
#[derive(Clone, Debug, PartialEq)]
pub struct DraftProgress {
    stop_rule: DraftStopRule,
    made: usize,
    /// Chance that all drafts so far are accepted.
    reach: f64,
}

impl DraftProgress {
    /// The state before the first draft, which is always made.
    #[must_use]
    pub fn new(stop_rule: DraftStopRule) -> Self {
        Self { stop_rule, made: 0, reach: 1.0 }
    }

    /// The drafter's probability, 0 to 1, below which the next draft is discarded and ends the chain.
    #[must_use]
    pub fn p_min(&self) -> f32 {
        self.stop_rule.p_min(self.made, self.reach)
    }

    /// Prices of tokens, rows and drafts under this rule.
    #[must_use]
    pub fn worth(&self) -> Worth {
        Worth::of(&self.stop_rule.costs, self.stop_rule.token_us)
    }

    /// Adds a copy, which is accepted with this chance.
    pub fn copy(&mut self, chance: f64) {
        self.made += 1;
        self.reach *= chance;
    }

    /// Adds a draft with this probability.
    pub fn take(&mut self, q: f32) {
        self.made += 1;
        self.reach *= self.stop_rule.confidence.chance(q);
    }

    /// The chance that a draft with this probability is accepted if those before it are.
    #[must_use]
    pub fn chance(&self, q: f32) -> f64 {
        self.stop_rule.confidence.chance(q)
    }

    /// The chance that an alternative with this probability is the target's token where its row is reached.
    #[must_use]
    pub fn alternative(&self, q: f32) -> f64 {
        (f64::from(q) * self.stop_rule.alternatives).min(1.0)
    }

    /// Whether a token that is gained with this chance is worth the row after `made` drafts.
    #[must_use]
    pub fn pays_row(&self, made: usize, chance: f64) -> bool {
        chance * self.stop_rule.token_us > self.stop_rule.row_us(made)
    }

    /// What the row after `made` drafts costs, in tokens.
    #[must_use]
    pub fn row_price(&self, made: usize) -> f64 {
        self.stop_rule.row_us(made) / self.stop_rule.token_us
    }

    /// Whether another draft is worth making.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        self.made == 0 || self.stop_rule.goes_on(self.made, self.reach)
    }
}

/// Expected gain in tokens, and cost in microseconds, of some more drafts.
#[derive(Clone, Copy)]
struct MoreDrafts {
    tokens: f64,
    cost_us: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(row: f64) -> Costs {
        let verify_us = (0..9).map(|rows| 1000.0 + row * f64::from(rows)).collect();
        Costs { verify_us, draft_us: 80.0, draft_pass_us: 0.0, settle_us: 10.0, overhead_us: 20.0 }
    }

    fn stop_rule(row: f64) -> DraftStopRule {
        Confidence::default().stop_rule(costs(row), 8, 800.0)
    }

    #[test]
    fn a_draft_ends_where_a_row_costs_more_than_it_is_likely_to_bring() {
        let stop_rule = stop_rule(120.0);
        // alone a row pays off from 120 ÷ 800 on; that others may follow does not make it costlier
        let first = stop_rule.p_min(0, 1.0);
        assert!((0.10..=0.15).contains(&first), "{first}");
        let least = |reach| stop_rule.p_min(1, reach);
        assert!(
            least(0.9) < least(0.5) && least(0.5) < least(0.2),
            "less likely drafts so far need a more probable next one"
        );
        assert_eq!(stop_rule.p_min(1, 0.01), 1.0, "at most 1, though even a certain draft would not pay off");
        // one more: 0.6 · 800 against 80 + 120
        assert!(stop_rule.goes_on(1, 0.6) && !stop_rule.goes_on(1, 0.2));
        assert!(!stop_rule.goes_on(8, 1.0), "nine rows were timed");
    }

    #[test]
    fn costly_rows_end_drafts_early_and_free_ones_late() {
        assert!(!stop_rule(900.0).goes_on(1, 1.0) && stop_rule(900.0).p_min(0, 1.0) == 1.0);
        assert!(stop_rule(0.0).goes_on(6, 0.3) && stop_rule(0.0).p_min(0, 1.0) == 0.0);
    }

    #[test]
    fn a_chain_continues_while_all_drafts_are_likely() {
        let mut progress = DraftProgress::new(stop_rule(120.0));
        assert!(progress.goes_on() && progress.p_min() <= 0.15);
        progress.take(0.9);
        assert!(progress.goes_on(), "0.9 · 0.6 · 800 against 200");
        let sure = progress.p_min();
        progress.take(0.3);
        assert!(progress.p_min() > sure && !progress.goes_on(), "0.9 · 0.3 · 0.6 · 800 against 200");
        let mut hopeless = DraftProgress::new(stop_rule(900.0));
        assert!(hopeless.goes_on() && hopeless.p_min() == 1.0, "the first draft is made and discarded");
        hopeless.take(1.0);
        assert!(!hopeless.goes_on());
    }

    #[test]
    fn a_chain_ends_at_k() {
        let stop_rule = Confidence::default().stop_rule(costs(120.0), 2, 800.0);
        assert!(stop_rule.goes_on(1, 1.0) && !stop_rule.goes_on(2, 1.0));
    }

    #[test]
    fn an_overconfident_drafter_is_trusted_less() {
        let mut overconfident = Confidence::default();
        (0..200).for_each(|round| overconfident.observe(&[Some(0.9)], usize::from(round % 3 == 0), 0));
        let stop_rule = overconfident.stop_rule(costs(120.0), 8, 800.0);
        assert!((stop_rule.confidence.chance(0.9) - 0.33).abs() < 0.06, "{}", stop_rule.confidence.chance(0.9));
        assert!(stop_rule.p_min(0, 1.0) > 0.2);
        let mut honest = Confidence::default();
        (0..200).for_each(|round| honest.observe(&[Some(0.9)], usize::from(round % 10 != 0), 0));
        assert!((honest.chance(0.9) - 0.9).abs() < 0.05);
        assert!(stop_rule.confidence.chance(1.0) <= 1.0 && honest.chance(1.0) <= 1.0);
    }

    #[test]
    fn drafts_without_probabilities_and_invalid_ones_are_ignored() {
        let mut confidence = Confidence::default();
        assert!(!confidence.has_probabilities());
        confidence.observe(&[Some(0.5), Some(0.4)], 1, 0);
        assert!(confidence.has_probabilities());
        (0..20).for_each(|_| confidence.observe(&[None, None], 2, 0));
        assert!(!confidence.has_probabilities(), "most drafts have no probability");
        let before = confidence.stop_rule(costs(120.0), 8, 800.0);
        confidence.observe(&[Some(f32::NAN), Some(f32::INFINITY)], 2, 0);
        let after = confidence.stop_rule(costs(120.0), 8, 800.0);
        assert!(before.confidence.chance(0.5) == after.confidence.chance(0.5) && after.next.accepted.is_finite());
    }
}
