//! Where a draft ends: at the token whose verification, or whose making, would cost more than it is
//! likely to save.
//!
//! A drafter's probability of its own proposal says how likely that is to be accepted, and says so before
//! the target is asked. With `R` the chance that all drafts so far are accepted and `V` the time that a
//! token takes at the speed expected, a draft that is accepted with chance `a` is worth `R · a · V`, and
//! more if others follow; its row costs `T(m + 1) − T(m)` and another draft costs `d`. Invariant: pure,
//! and a token's own value never decides whether it is proposed, only the distribution it comes from and
//! what was proposed before it: so every lossless rule stays one.

use crate::protocol::Costs;

/// Chance of acceptance of a draft that is not made yet, before any was seen.
const NEXT_GUESS: f64 = 0.6;
/// Chance that it is proposed, before any was seen.
const NEXT_OFFERED: f64 = 0.8;
/// Drafts that these guesses count for.
const NEXT_WEIGHT: f64 = 20.0;
/// Accepted drafts that trusting the drafter's own probabilities counts for.
const TRUST_WEIGHT: f64 = 6.0;
/// What counts keep of themselves at the next draft: the last 100 or so weigh.
const KEEP: f64 = 0.99;

/// Share of drafts without a probability from which on drafts are not ended by probabilities alone.
const SILENT: f64 = 0.1;

/// What is known of the drafter's probabilities: faded counts and sums.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Confidence {
    /// Drafts with a probability that were tested.
    accepted: f64,
    /// Sum of their probabilities.
    promised: f64,
    /// Drafts made behind others, those of them that were proposed, and the sum of their probabilities.
    later: f64,
    later_offered: f64,
    later_sure: f64,
    /// Drafts with a probability and without one.
    spoken: f64,
    silent: f64,
}

impl Confidence {
    /// A round whose draft `i` had the largest probability `sure[i]`; so many behind them were left out.
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

    /// The chance that a draft of this probability is accepted when those before it were.
    pub(super) fn chance(&self, q: f32) -> f64 {
        (f64::from(q) * self.trust()).min(1.0)
    }

    /// Whether the drafter says of nearly all its drafts how probable they are.
    pub(super) fn is_informative(&self) -> bool {
        self.spoken > 0.0 && self.silent <= SILENT * (self.spoken + self.silent)
    }

    /// Accepted drafts for each that the drafter's probabilities promised.
    fn trust(&self) -> f64 {
        (self.accepted + TRUST_WEIGHT) / (self.promised + TRUST_WEIGHT)
    }

    /// A draft behind others that is not made yet.
    fn next(&self) -> Next {
        let sure = (self.later_sure + NEXT_GUESS * NEXT_WEIGHT) / (self.later + NEXT_WEIGHT);
        let offered = (self.later_offered + NEXT_OFFERED * NEXT_WEIGHT) / (self.later + NEXT_WEIGHT);
        Next { accepted: (sure * self.trust()).min(1.0), offered }
    }

    /// What ends drafts of at most `longest` tokens at these costs, where a token takes `token_us`.
    pub(super) fn stop_rule(&self, costs: Costs, longest: usize, token_us: f64) -> DraftStopRule {
        DraftStopRule { confidence: *self, next: self.next(), costs, longest, token_us }
    }
}

/// Tells a drafter in a round where to end.
#[derive(Clone, Debug, PartialEq)]
pub struct DraftStopRule {
    costs: Costs,
    longest: usize,
    token_us: f64,
    confidence: Confidence,
    next: Next,
}

/// Chances of a draft that is not made yet.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Next {
    /// That it is sure enough to be proposed.
    offered: f64,
    /// That it is proposed and accepted, when those before it are.
    accepted: f64,
}

impl DraftStopRule {
    /// The drafter's probability below which a draft behind `made` others is not worth its row; those are
    /// all accepted with chance `reach`. At most 1.
    fn p_min(&self, made: usize, reach: f64) -> f32 {
        // with n drafts more behind it: a · (1 + next + next² + …) tokens
        let needed = |plan: Plan| plan.cost_us / (self.token_us * reach * (1.0 + plan.tokens));
        let alone = Plan { tokens: 0.0, cost_us: 0.0 };
        let row_us = self.row_us(made);
        let plans = std::iter::once(alone).chain(self.plans(made + 1));
        let least = plans.map(|plan| needed(Plan { cost_us: plan.cost_us + row_us, ..plan })).fold(1.0, f64::min);
        (least / self.confidence.trust()).clamp(0.0, 1.0) as f32
    }

    /// Whether another draft behind `made` ones, all accepted with chance `reach`, is worth making.
    fn goes_on(&self, made: usize, reach: f64) -> bool {
        self.plans(made).any(|plan| self.token_us * reach * plan.tokens > plan.cost_us)
    }

    /// 1, 2, … drafts more behind `made`: tokens that they bring once those are accepted, and their cost.
    fn plans(&self, made: usize) -> impl Iterator<Item = Plan> {
        let (mut chance, mut tokens, mut cost_us) = (1.0, 0.0, 0.0);
        (made..self.longest).map(move |at| {
            chance *= self.next.accepted;
            tokens += chance;
            cost_us += self.costs.draft_us + self.next.offered * self.row_us(at);
            Plan { tokens, cost_us }
        })
    }

    /// What the row of a draft behind `made` others costs.
    fn row_us(&self, made: usize) -> f64 {
        match self.costs.verify_us.get(made..=made + 1) {
            Some([before, with]) => with - before,
            _ => f64::INFINITY,
        }
    }
}

/// A chain under way that a [`DraftStopRule`] ends.
#[derive(Clone, Debug, PartialEq)]
pub struct DraftProgress {
    stop_rule: DraftStopRule,
    made: usize,
    /// Chance that all drafts so far are accepted.
    reach: f64,
}

impl DraftProgress {
    /// Before the first draft, which is always made.
    #[must_use]
    pub fn new(stop_rule: DraftStopRule) -> Self {
        Self { stop_rule, made: 0, reach: 1.0 }
    }

    /// The drafter's probability below which the next draft is left out, and ends the chain.
    #[must_use]
    pub fn p_min(&self) -> f32 {
        self.stop_rule.p_min(self.made, self.reach)
    }

    /// Adds a draft of this probability.
    pub fn take(&mut self, q: f32) {
        self.made += 1;
        self.reach *= self.stop_rule.confidence.chance(q);
    }

    /// Whether another draft is worth making.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        self.made == 0 || self.stop_rule.goes_on(self.made, self.reach)
    }
}

/// Drafts to come.
#[derive(Clone, Copy)]
struct Plan {
    tokens: f64,
    cost_us: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(row: f64) -> Costs {
        let verify_us = (0..9).map(|rows| 1000.0 + row * f64::from(rows)).collect();
        Costs { verify_us, draft_us: 80.0, settle_us: 10.0, overhead_us: 20.0 }
    }

    fn stop_rule(row: f64) -> DraftStopRule {
        Confidence::default().stop_rule(costs(row), 8, 800.0)
    }

    #[test]
    fn a_draft_ends_where_a_row_costs_more_than_it_is_likely_to_bring() {
        let stop_rule = stop_rule(120.0);
        // alone a row pays from 120 ÷ 800 on; that others may follow makes it no dearer
        let first = stop_rule.p_min(0, 1.0);
        assert!((0.10..=0.15).contains(&first), "{first}");
        let least = |reach| stop_rule.p_min(1, reach);
        assert!(least(0.9) < least(0.5) && least(0.5) < least(0.2), "the less is likely so far, the more it takes");
        assert_eq!(stop_rule.p_min(1, 0.01), 1.0, "only what is certain, and that does not pay either");
        // one more: 0.6 · 800 against 80 + 120
        assert!(stop_rule.goes_on(1, 0.6) && !stop_rule.goes_on(1, 0.2));
        assert!(!stop_rule.goes_on(8, 1.0), "nine rows were timed");
    }

    #[test]
    fn dear_rows_end_drafts_early_and_free_ones_hardly() {
        assert!(!stop_rule(900.0).goes_on(1, 1.0) && stop_rule(900.0).p_min(0, 1.0) == 1.0);
        assert!(stop_rule(0.0).goes_on(6, 0.3) && stop_rule(0.0).p_min(0, 1.0) == 0.0);
    }

    #[test]
    fn a_course_goes_on_while_all_is_likely() {
        let mut progress = DraftProgress::new(stop_rule(120.0));
        assert!(progress.goes_on() && progress.p_min() <= 0.15);
        progress.take(0.9);
        assert!(progress.goes_on(), "0.9 · 0.6 · 800 against 200");
        let sure = progress.p_min();
        progress.take(0.3);
        assert!(progress.p_min() > sure && !progress.goes_on(), "0.9 · 0.3 · 0.6 · 800 against 200");
        let mut hopeless = DraftProgress::new(stop_rule(900.0));
        assert!(hopeless.goes_on() && hopeless.p_min() == 1.0, "the first is made, and left out");
        hopeless.take(1.0);
        assert!(!hopeless.goes_on());
    }

    #[test]
    fn nothing_is_planned_behind_k() {
        let stop_rule = Confidence::default().stop_rule(costs(120.0), 2, 800.0);
        assert!(stop_rule.goes_on(1, 1.0) && !stop_rule.goes_on(2, 1.0));
    }

    #[test]
    fn a_drafter_that_promises_too_much_is_trusted_less() {
        let mut boaster = Confidence::default();
        (0..200).for_each(|round| boaster.observe(&[Some(0.9)], usize::from(round % 3 == 0), 0));
        let stop_rule = boaster.stop_rule(costs(120.0), 8, 800.0);
        assert!((stop_rule.confidence.chance(0.9) - 0.33).abs() < 0.06, "{}", stop_rule.confidence.chance(0.9));
        assert!(stop_rule.p_min(0, 1.0) > 0.2);
        let mut honest = Confidence::default();
        (0..200).for_each(|round| honest.observe(&[Some(0.9)], usize::from(round % 10 != 0), 0));
        assert!((honest.chance(0.9) - 0.9).abs() < 0.05);
        assert!(stop_rule.confidence.chance(1.0) <= 1.0 && honest.chance(1.0) <= 1.0);
    }

    #[test]
    fn drafts_without_probabilities_and_nonsense_teach_nothing() {
        let mut confidence = Confidence::default();
        assert!(!confidence.is_informative());
        confidence.observe(&[Some(0.5), Some(0.4)], 1, 0);
        assert!(confidence.is_informative());
        (0..20).for_each(|_| confidence.observe(&[None, None], 2, 0));
        assert!(!confidence.is_informative(), "most drafts say nothing of themselves");
        let before = confidence.stop_rule(costs(120.0), 8, 800.0);
        confidence.observe(&[Some(f32::NAN), Some(f32::INFINITY)], 2, 0);
        let after = confidence.stop_rule(costs(120.0), 8, 800.0);
        assert!(before.confidence.chance(0.5) == after.confidence.chance(0.5) && after.next.accepted.is_finite());
    }
}
