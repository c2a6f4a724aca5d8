//! Chooses the k with the most expected tokens per second, from measured costs and fading acceptance.
//!
//! Invariant: pure. It reads no clock and draws no random numbers: the same observations give the same choices. k = 0
//! is plain decoding and a choice like any other. A round of k is expected to commit `E(k) = 1 + Σ_i Π_{j ≤ i} a_j`
//! tokens and to take `T(k + 1) + b + k · d + o`, where T and d count the drafts that the drafter really proposes
//! and b is the pass of a block drafter (`docs/draft-length.md`).
//!
//! A drafter that reports probabilities needs no k that fits all rounds: each draft ends where the [`DraftStopRule`]
//! finds that another token would not pay off. Its k is either 0 or the longest that was timed. Other drafters get the
//! k that is best on average.
//!
//! Trying another k costs time. A trial (a *look*) of some rounds is made only if that k, plain decoding included,
//! might win given the uncertainty of its acceptance and cost. All looks together may cost `LOOK_SHARE` of the time,
//! the drafter's catching up included, and less while looks change nothing. The constants were chosen in simulations of probe runs over prompts that are not
//! in the suite.

mod acceptance;
mod alternatives;
mod costs;
mod draft_stop;
mod observation;
mod worth;

use crate::{Costs, DrafterKind, MAX_DRAFT_LEN};

use acceptance::Acceptance;
use alternatives::Alternatives;
pub use costs::rising;
pub use draft_stop::{DraftProgress, DraftStopRule};
pub use observation::{Observation, ObservedDraft};
pub use worth::Worth;

use costs::{CostModel, Now};
use draft_stop::Confidence;

/// Share of the time that looks may cost, until one of them has changed nothing.
const LOOK_SHARE: f64 = 0.015;
/// Largest divisor of that share: 1 and the looks in a row that changed nothing.
const LOOKS_IN_VAIN: f64 = 3.0;
/// Fewest rounds between two looks.
const LOOK_PAUSE: u32 = 32;
/// Rounds of a look.
const LOOK_ROUNDS: u32 = 4;
/// Rounds after which plain decoding, the reference of all comparisons, is timed again.
const PLAIN_PAUSE: u32 = 96;
/// Standard errors that are added to the estimate of a k when a look is considered.
const HOPE: f64 = 0.6;
/// Factor by which another k must be expected to be faster than the one in force.
const MARGIN: f64 = 1.025;
/// Factor in favour of plain decoding: the expected speed of drafting depends on more estimates, and on a busy machine
/// wide passes cost more than measured.
const EDGE: f64 = 1.04;
/// Guess, before the first observation, of how often a draft gets one more token when the stop rule ends drafts.
const ENDED: f64 = 0.5;
/// Fewest rounds with a stop rule before plain decoding can be chosen: such drafts cost little.
const PATIENCE: u32 = 16;
/// Tokens over which a change from plain decoding must earn the cost of catching up.
const HORIZON: f64 = 64.0;

/// The k for the next round.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// k.
    pub draft_len: usize,
    /// The change of k; none if k is as before.
    pub change: Option<Change>,
}

/// A change of k and its reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// k before.
    pub from: usize,
    /// Expected tokens per second for each k, index 0 is plain decoding; with a [`DraftStopRule`], for drafts that it
    /// ends.
    pub expected: Vec<f64>,
    /// Whether this is a look.
    pub exploring: bool,
    /// The reason in one sentence.
    pub reason: String,
}

/// A look in progress.
#[derive(Clone, Copy, Debug)]
struct Look {
    draft_len: usize,
    left: u32,
}

/// Chooses k round by round.
#[derive(Clone, Debug)]
pub struct Policy {
    costs: CostModel,
    acceptance: Acceptance,
    confidence: Confidence,
    alternatives: Alternatives,
    longest: usize,
    /// The k in force between looks; none before the first choice.
    settled: Option<usize>,
    look: Option<Look>,
    /// The last chosen k.
    last: usize,
    /// Tokens committed since the drafter last ran, on which it must catch up.
    waiting: f64,
    /// Rounds that drafted.
    tried: u32,
    /// Rounds since the last look.
    since_look: u32,
    /// Looks since k last changed for good.
    in_vain: f64,
    /// Rounds since a pass over one row was timed.
    since_plain: u32,
    total_us: f64,
    spent_us: f64,
    /// Whether all drafts are copies, so that k is no question.
    is_free: bool,
    /// Whether some drafts are copies and others a model's.
    is_stacked: bool,
}

impl Policy {
    /// A policy with these costs and no observations of the drafter. `from` is the k in force so far.
    #[must_use]
    pub fn new(costs: Costs, from: usize) -> Self {
        Self {
            longest: costs.longest().min(MAX_DRAFT_LEN.into()),
            costs: CostModel::new(costs),
            acceptance: Acceptance::default(),
            confidence: Confidence::default(),
            alternatives: Alternatives::default(),
            settled: None,
            look: None,
            last: from,
            waiting: 0.0,
            tried: 0,
            since_look: 0,
            in_vain: 0.0,
            since_plain: PLAIN_PAUSE - LOOK_PAUSE,
            total_us: 0.0,
            spent_us: 0.0,
            is_free: false,
            is_stacked: false,
        }
    }

    /// Takes which drafter drafts. Copies cost no pass, and none are made where nothing can be copied: with them alone a
    /// round without drafts is a plain one, so the stop rule decides and not k.
    pub fn set_drafter(&mut self, kind: DrafterKind) {
        (self.is_free, self.is_stacked) = (kind == DrafterKind::Suffix, kind.stacks_copies());
    }

    /// Prepares for the next answer; its prefill has brought the drafter up to date.
    pub fn begin_answer(&mut self) {
        self.acceptance.begin_answer();
        self.costs.begin_answer();
        self.waiting = 0.0;
        self.look = None;
    }

    /// Resumes choosing, after rounds whose k (`from`) the policy did not choose.
    pub fn resume(&mut self, from: usize) {
        self.last = from;
        self.look = None;
        self.waiting = 0.0;
    }

    /// Takes the time of a target pass in another lane.
    pub fn verified(&mut self, rows: usize, took_us: f64) {
        if rows == 1 {
            self.since_plain = 0;
        }
        self.costs.verified(rows, took_us);
    }

    /// Takes the observation of the last round.
    pub fn observe(&mut self, seen: &Observation) {
        let made = seen.drafted + seen.dropped;
        self.since_plain = self.since_plain.saturating_add(1);
        if seen.drafted == 0 && made > 0 {
            self.costs.verified_after_discarded(seen.verify_us);
        } else {
            self.verified(seen.drafted + seen.alternatives + 1, seen.verify_us);
        }
        self.costs.overhead(seen.round_us - seen.verify_us - seen.draft_us, made == 0);
        // a copy costs no pass, so rounds with copies say nothing about the cost of a model's draft
        if made > 0 && !(self.is_stacked && seen.has_copies) && self.waiting == 0.0 {
            let later = (made > 1).then(|| (seen.draft_us - seen.first_draft_us) / (made - 1) as f64);
            if seen.one_pass || self.costs.drafts_blocks() {
                self.costs.drafted_block(seen.first_draft_us, later);
            } else {
                self.costs.drafted(seen.first_draft_us, later);
            }
        }
        let sure = &seen.sure[..seen.drafted.min(seen.sure.len())];
        let chance = |q: &Option<f32>| q.filter(|q| q.is_finite()).map(|q| self.confidence.chance(q));
        let promised: Vec<Option<f64>> = sure.iter().map(chance).collect();
        self.acceptance.observe(seen.asked, seen.drafted, seen.accepted, &promised);
        self.confidence.observe(sure, seen.accepted, seen.dropped);
        self.alternatives.observe(seen);
        self.tried = self.tried.saturating_add(u32::from(seen.asked > 0));
        self.waiting = if seen.asked > 0 { 0.0 } else { self.waiting + 1.0 };
        self.total_us += seen.round_us;
        if let (Some(_), Some(settled)) = (self.look, self.settled) {
            let tokens = 1.0 + seen.accepted as f64 + f64::from(u8::from(seen.took_alternative));
            let usual = tokens / self.rates(0.0)[settled];
            self.spent_us = (self.spent_us + seen.round_us - usual).max(0.0);
        }
    }

    /// The k for the next round.
    pub fn choose(&mut self) -> Choice {
        if self.is_free {
            self.settled = Some(self.longest);
            return self.change(self.longest, &self.rates(0.0), false);
        }
        if let Some(look) = &mut self.look
            && look.left > 0
        {
            look.left -= 1;
            return Choice { draft_len: look.draft_len, change: None };
        }
        self.look = None;
        let rates = self.rates(0.0);
        let best = self.best(&rates);
        let Some(settled) = self.settled else {
            self.settled = Some(best);
            return self.change(best, &rates, false);
        };
        if best != settled && (!self.is_open(settled) || self.is_worth_it(settled, best, &rates)) {
            self.settled = Some(best);
            (self.since_look, self.in_vain) = (0, 0.0);
            return self.change(best, &rates, false);
        }
        self.since_look += 1;
        if let Some(draft_len) = self.worth_a_look(settled, &rates) {
            self.since_look = 0;
            self.in_vain += f64::from(u8::from(draft_len > 0));
            self.look = Some(Look { draft_len, left: LOOK_ROUNDS - 1 });
            return self.change(draft_len, &rates, true);
        }
        self.change(settled, &rates, false)
    }

    /// The stop rule for a round of at most `draft_len` drafts.
    #[must_use]
    pub fn stop_rule(&self, draft_len: usize) -> DraftStopRule {
        let fastest = self.rates(0.0).into_iter().fold(f64::MIN_POSITIVE, f64::max);
        let stop_rule = self.confidence.stop_rule(self.costs.now().costs, draft_len.min(self.longest), 1.0 / fastest);
        stop_rule.trusting(self.alternatives.trust())
    }

    /// Expected tokens per microsecond for k = 0, 1, 2, …, with the acceptance `hope` standard errors higher, and the
    /// costs of other widths relative to the settled one as many lower.
    fn rates(&self, hope: f64) -> Vec<f64> {
        let now = match self.settled {
            Some(settled) if hope > 0.0 => self.costs.hoped(settled + 1, hope),
            _ => self.costs.now(),
        };
        let acceptance = self.acceptance.by_position(hope, self.confidence.has_probabilities());
        let drafted = self.drafted();
        let (rows, gained) = self.alternatives.per_round();
        let (mut reach, mut tokens) = (1.0, 1.0);
        let rate = |k: usize| {
            if k == 0 {
                return tokens / round_us(&now, 0, [0.0; 2]);
            }
            reach *= acceptance[k - 1];
            tokens += reach;
            (tokens + gained) / round_us(&now, k, [drafted[k], rows])
        };
        (0..=self.longest).map(rate).collect()
    }

    /// Mean number of drafts of a round, by k.
    fn drafted(&self) -> Vec<f64> {
        let next = if self.confidence.has_probabilities() { ENDED } else { 1.0 };
        self.acceptance.drafted(next).to_vec()
    }

    /// Whether k may be chosen. With a stop rule only the longest k and, after [`PATIENCE`] rounds, 0.
    fn is_open(&self, k: usize) -> bool {
        !self.confidence.has_probabilities() || k == self.longest || (k == 0 && self.tried >= PATIENCE)
    }

    /// The k with the largest rate, the smallest of equal ones.
    fn best(&self, rates: &[f64]) -> usize {
        let open = (0..rates.len()).filter(|k| self.is_open(*k));
        let expected = |k: usize| if k == 0 { rates[0] * EDGE } else { rates[k] };
        open.reduce(|best, k| if expected(k) > expected(best) { k } else { best }).unwrap_or(0)
    }

    fn is_worth_it(&self, settled: usize, best: usize, rates: &[f64]) -> bool {
        let gained_us = HORIZON * (1.0 / rates[settled] - 1.0 / rates[best]);
        let catch_up_us = if settled == 0 { self.waiting * self.costs.now().costs.settle_us } else { 0.0 };
        let edge = if best == 0 { EDGE } else { 1.0 };
        rates[best] * edge > rates[settled] * MARGIN && gained_us > catch_up_us
    }

    /// A k that may be better than the one in force, if a look at it is within the budget.
    fn worth_a_look(&self, settled: usize, rates: &[f64]) -> Option<usize> {
        if self.since_look < LOOK_PAUSE {
            return None;
        }
        if self.since_plain >= PLAIN_PAUSE {
            return Some(0);
        }
        let hoped = self.rates(HOPE);
        let candidate = self.best(&hoped);
        if candidate == settled || hoped[candidate] < rates[settled] * MARGIN {
            return None;
        }
        let now = self.costs.now();
        let round = round_us(&now, candidate, [self.drafted()[candidate], self.alternatives.per_round().0]);
        // a round at the candidate's mean speed, compared with the same tokens at the k in force
        let loss = round * (1.0 - rates[candidate] / rates[settled]);
        let catch_up_us = if settled == 0 { self.waiting * now.costs.settle_us } else { 0.0 };
        let price = loss.max(0.0) * f64::from(LOOK_ROUNDS) + catch_up_us;
        let share = LOOK_SHARE / (1.0 + self.in_vain).min(LOOKS_IN_VAIN);
        (self.spent_us + price <= share * self.total_us).then_some(candidate)
    }

    fn change(&mut self, draft_len: usize, rates: &[f64], exploring: bool) -> Choice {
        let from = std::mem::replace(&mut self.last, draft_len);
        if from == draft_len {
            return Choice { draft_len, change: None };
        }
        let expected: Vec<f64> = rates.iter().map(|rate| rate * 1e6).collect();
        let reason = self.reason(from, draft_len, &expected, exploring);
        Choice { draft_len, change: Some(Change { from, expected, exploring, reason }) }
    }

    fn reason(&self, from: usize, to: usize, expected: &[f64], exploring: bool) -> String {
        let sign = if self.confidence.has_probabilities() { "≤" } else { "=" };
        let name = |k: usize| if k == 0 { "plain decoding".to_owned() } else { format!("k {sign} {k}") };
        if exploring {
            return format!(
                "k {from} → {to} for {LOOK_ROUNDS} rounds, to measure {}: it may be faster than {}",
                name(to),
                name(from)
            );
        }
        if self.is_free {
            return format!(
                "k {from} → {to}: copies cost no pass and each draft ends where another token would not pay off, so k is only \
                 an upper limit"
            );
        }
        let speed = |k: usize| expected.get(k).copied().unwrap_or_default();
        if to > 0 && !self.is_open(from) {
            return format!(
                "k {from} → {to}: each draft ends where the drafter's probability says that another token would not pay off, so k is \
                 only an upper limit; expected {:.0} tokens/s with {}, {:.0} with {}",
                speed(to),
                name(to),
                speed(0),
                name(0),
            );
        }
        let why = if to == 0 && speed(0) < speed(from) {
            format!("plain decoding is used unless drafts are expected to be {:.0} % faster", (EDGE - 1.0) * 100.0)
        } else if self.confidence.has_probabilities() {
            "each draft ends where another token would not pay off".to_owned()
        } else {
            let acceptance = self.acceptance.by_position(0.0, self.confidence.has_probabilities());
            let shown = acceptance.iter().take(from.max(to).clamp(1, 4)).map(|a| format!("{:.0} %", a * 100.0));
            let shown = shown.collect::<Vec<_>>().join(", ");
            format!("accepted at position 1, 2, … if all before were: {shown}")
        };
        format!(
            "k {from} → {to}: expected {:.0} tokens/s with {}, {:.0} with {}; {why}",
            speed(to),
            name(to),
            speed(from),
            name(from),
        )
    }
}

/// Time of a round of k with a mean of `drafted` drafts and of `beside` alternatives, in microseconds; widths are
/// interpolated. A discarded draft costs its drafting, and an alternative only its row.
fn round_us(now: &Now, k: usize, [drafted, beside]: [f64; 2]) -> f64 {
    if k == 0 {
        return now.plain_us;
    }
    let costs = &now.costs;
    let rows = (drafted + beside).min(costs.longest() as f64);
    let below = rows.floor() as usize;
    let above = (below + 1).min(costs.longest());
    let part = rows - below as f64;
    let verify = costs.verify_us[below] * (1.0 - part) + costs.verify_us[above] * part;
    let made = (1.0 + drafted).min(k as f64);
    verify + made * costs.draft_us + now.first_us + costs.overhead_us
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As measured on two cores: a draft costs 9 % of a pass over one row, and further rows are cheap.
    fn costs() -> Costs {
        let shape = [1.0, 1.03, 1.07, 1.11, 1.16, 1.22, 1.29, 1.37, 1.46];
        let verify_us = shape.iter().map(|t| t * 3000.0).collect();
        Costs { verify_us, draft_us: 270.0, draft_pass_us: 0.0, settle_us: 45.0, overhead_us: 60.0 }
    }

    /// Reproducible draws in [0, 1).
    struct Lcg(u64);

    impl Lcg {
        fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    struct World {
        costs: Costs,
        acceptance: [f64; 8],
        chance: Lcg,
        waiting: f64,
    }

    impl World {
        fn new(acceptance: [f64; 8]) -> Self {
            Self { costs: costs(), acceptance, chance: Lcg(7), waiting: 0.0 }
        }

        fn round(&mut self, k: usize) -> Observation {
            let accepted = (0..k).take_while(|i| self.chance.next() < self.acceptance[*i]).count();
            let settle = if k > 0 { std::mem::take(&mut self.waiting) * self.costs.settle_us } else { 0.0 };
            self.waiting += if k > 0 { 0.0 } else { 1.0 };
            let first_draft_us = self.costs.drafting_us(k.min(1)) + settle;
            let draft_us = self.costs.drafting_us(k) + settle;
            let verify_us = self.costs.verify_us[k];
            let round_us = draft_us + verify_us + self.costs.overhead_us;
            Observation {
                asked: k,
                drafted: k,
                accepted,
                one_pass: self.costs.draft_pass_us > 0.0 && k > 1,
                first_draft_us,
                draft_us,
                verify_us,
                round_us,
                ..Observation::default()
            }
        }

        /// Tokens per microsecond over `rounds` rounds of one k.
        fn fixed(&mut self, k: usize, rounds: usize) -> f64 {
            let seen: Vec<Observation> = (0..rounds).map(|_| self.round(k)).collect();
            speed(&seen)
        }
    }

    fn speed(seen: &[Observation]) -> f64 {
        let tokens: f64 = seen.iter().map(|s| 1.0 + s.accepted as f64).sum();
        tokens / seen.iter().map(|s| s.round_us).sum::<f64>()
    }

    fn play(world: &mut World, policy: &mut Policy, rounds: usize) -> (Vec<Observation>, Vec<Change>) {
        let (mut all, mut changes) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let choice = policy.choose();
            changes.extend(choice.change);
            let seen = world.round(choice.draft_len);
            policy.observe(&seen);
            all.push(seen);
        }
        (all, changes)
    }

    #[test]
    fn it_is_nearly_as_fast_as_the_best_fixed_k() {
        let drafters = [
            [0.4, 0.3, 0.3, 0.2, 0.2, 0.2, 0.2, 0.2],
            [0.75, 0.7, 0.7, 0.65, 0.65, 0.6, 0.6, 0.6],
            [0.95; 8],
            [0.6, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05],
        ];
        for acceptance in drafters {
            let mut world = World::new(acceptance);
            let best = (0..=8).map(|k| world.fixed(k, 4000)).fold(0.0, f64::max);
            let mut policy = Policy::new(costs(), 0);
            let (seen, changes) = play(&mut World::new(acceptance), &mut policy, 600);
            let share = speed(&seen) / best;
            assert!(share > 0.95, "{acceptance:?}: {share:.3} of the best fixed k");
            assert!(changes.len() < 60, "{acceptance:?}: changed {} times", changes.len());
        }
    }

    #[test]
    fn hopeless_drafts_cost_less_than_two_percent_of_a_long_answer() {
        for (rounds, least) in [(128, 0.97), (400, 0.98), (2000, 0.98)] {
            let mut policy = Policy::new(costs(), 3);
            let (seen, changes) = play(&mut World::new([0.0; 8]), &mut policy, rounds);
            let share = speed(&seen) * (3000.0 + 60.0);
            assert!(share > least, "{rounds} rounds: {share:.4} of plain");
            assert_eq!(policy.settled, Some(0));
            assert!(changes.iter().any(|c| c.reason.contains("tokens/s with plain decoding")));
        }
    }

    #[test]
    fn it_notices_when_drafts_begin_to_pay_off() {
        let mut policy = Policy::new(costs(), 0);
        let mut world = World::new([0.0; 8]);
        play(&mut world, &mut policy, 300);
        assert_eq!(policy.settled, Some(0));
        world.acceptance = [0.9; 8];
        let (_, changes) = play(&mut world, &mut policy, 1200);
        assert_eq!(changes[0].from, 0, "{}", changes[0].reason);
        assert!(policy.settled.unwrap() >= 3, "{:?}", policy.settled);
    }

    #[test]
    fn it_notices_that_plain_decoding_is_faster_than_measured() {
        // one row takes 70 % of the time measured at the start; more rows cost as before
        let mut truth = costs();
        truth.verify_us[0] *= 0.7;
        let mut world = World { costs: truth.clone(), ..World::new([0.3; 8]) };
        let plain = 1.0 / (truth.verify_us[0] + truth.overhead_us);
        let mut policy = Policy::new(costs(), 2);
        play(&mut world, &mut policy, 300);
        let (seen, changes) = play(&mut world, &mut policy, 600);
        let share = speed(&seen) / plain;
        assert!(share > 0.96, "{share:.3} of plain after {} changes", changes.len());
    }

    /// Plays a drafter that reports correct probabilities. Returns the best speed of a fixed k in tokens per
    /// microsecond, and the rounds whose drafts the policy's stop rule ended.
    fn play_with_probabilities(costs: &Costs, certain: f64) -> (f64, Vec<Observation>, Vec<Change>) {
        let chain = |chance: &mut Lcg| -> [(f32, bool); 8] {
            std::array::from_fn(|_| {
                let q = if chance.next() < certain { 0.95 } else { 0.2 };
                (q, chance.next() < f64::from(q))
            })
        };
        let round = |k: usize, chain: &[(f32, bool)], dropped: usize| {
            let accepted = chain.iter().take_while(|draft| draft.1).count();
            let draft_us = costs.drafting_us(chain.len() + dropped);
            let verify_us = costs.verify_us[chain.len()];
            let round_us = draft_us + verify_us + costs.overhead_us;
            let mut sure = [None; MAX_DRAFT_LEN as usize];
            sure.iter_mut().zip(chain).for_each(|(sure, draft)| *sure = Some(draft.0));
            let first_draft_us = draft_us.min(costs.drafting_us(1));
            Observation {
                asked: k,
                drafted: chain.len(),
                accepted,
                dropped,
                sure,
                one_pass: costs.draft_pass_us > 0.0 && chain.len() > 1,
                first_draft_us,
                draft_us,
                verify_us,
                round_us,
                ..Observation::default()
            }
        };
        let fixed = |k: usize| {
            let mut chance = Lcg(5);
            speed(&(0..3000).map(|_| round(k, &chain(&mut chance)[..k], 0)).collect::<Vec<_>>())
        };
        let best = (0..=8).map(fixed).fold(0.0, f64::max);
        let (mut policy, mut chance) = (Policy::new(costs.clone(), 2), Lcg(5));
        let (mut all, mut changes) = (Vec::new(), Vec::new());
        for _ in 0..1000 {
            let choice = policy.choose();
            let (mut progress, chain) = (DraftProgress::new(policy.stop_rule(choice.draft_len)), chain(&mut chance));
            let (mut made, mut dropped) = (0, 0);
            while made < choice.draft_len && progress.goes_on() {
                if chain[made].0 < progress.p_min() {
                    dropped = 1;
                    break;
                }
                progress.take(chain[made].0);
                made += 1;
            }
            let seen = round(choice.draft_len, &chain[..made], dropped);
            policy.observe(&seen);
            all.push(seen);
            changes.extend(choice.change);
        }
        (best, all, changes)
    }

    #[test]
    fn drafts_ended_by_the_stop_rule_are_faster_than_every_fixed_k() {
        for certain in [0.3, 0.5, 0.8] {
            let (best, seen, changes) = play_with_probabilities(&costs(), certain);
            let share = speed(&seen) / best;
            assert!(share > 1.02, "{certain}: {share:.3} of the best fixed k");
            assert!(changes.len() < 80, "{certain}: {} changes", changes.len());
            let first = &changes[0].reason;
            assert!(changes.iter().any(|c| c.reason.contains("tokens/s with k ≤ 8")), "{certain}: {first}");
            let chosen = changes.iter().filter(|c| !c.exploring);
            let odd: Vec<_> = chosen.filter(|c| c.reason.matches("k ≤").count() > 1).collect();
            assert!(
                odd.is_empty(),
                "of all k above 0 only the longest can be chosen, so it is compared with no other: {odd:?}"
            );
        }
    }

    #[test]
    fn a_confident_but_wrong_drafter_is_soon_switched_off() {
        let costs = Costs {
            verify_us: vec![1000.0, 1020.0, 1040.0, 1060.0],
            draft_us: 50.0,
            draft_pass_us: 0.0,
            settle_us: 5.0,
            overhead_us: 10.0,
        };
        let (mut policy, mut us) = (Policy::new(costs.clone(), 0), 0.0);
        for _ in 0..300 {
            let k = policy.choose().draft_len;
            let drafted = k.min(1);
            let mut sure = [None; MAX_DRAFT_LEN as usize];
            sure[..drafted].fill(Some(0.9));
            let draft_us = drafted as f64 * costs.draft_us;
            let verify_us = costs.verify_us[drafted];
            let round_us = draft_us + verify_us + costs.overhead_us;
            us += round_us;
            policy.observe(&Observation {
                asked: k,
                drafted,
                sure,
                first_draft_us: draft_us,
                draft_us,
                verify_us,
                round_us,
                ..Observation::default()
            });
        }
        let share = 300.0 * 1010.0 / us;
        assert!(share > 0.975, "{share:.4} of plain");
    }

    /// A block drafter whose pass costs 40 % of a pass over one row, and a token of it next to nothing.
    fn block_costs() -> Costs {
        Costs { draft_us: 4.0, draft_pass_us: 1200.0, ..costs() }
    }

    #[test]
    fn a_block_costs_one_pass_whatever_k_is() {
        // with the first of them a short k pays, with the second a long one, and with the third none
        for acceptance in [[0.8, 0.7, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1], [0.95; 8], [0.3; 8]] {
            let mut world = World { costs: block_costs(), ..World::new(acceptance) };
            let speeds: Vec<f64> = (0..=8).map(|k| world.fixed(k, 4000)).collect();
            let best = speeds.iter().copied().fold(0.0, f64::max);
            let mut world = World { costs: block_costs(), ..World::new(acceptance) };
            let mut policy = Policy::new(block_costs(), 2);
            let (seen, _) = play(&mut world, &mut policy, 600);
            let share = speed(&seen) / best;
            assert!(share > 0.95, "{acceptance:?}: {share:.3} of the best fixed k of {speeds:?}");
            let now = policy.costs.now();
            assert!((now.first_us - 1200.0).abs() < 60.0 && now.costs.draft_us < 8.0, "{now:?}");
            assert!((now.plain_us - 3060.0).abs() < 150.0, "{now:?}");
        }
        let (best, seen, _) = play_with_probabilities(&block_costs(), 0.6);
        assert!(speed(&seen) > 0.97 * best, "{:.3} of the best fixed k", speed(&seen) / best);
    }

    #[test]
    fn costly_rows_make_it_decode_plainly_despite_probabilities() {
        let verify_us = (1..=9).map(|m| f64::from(m) * 3000.0).collect();
        let (best, seen, _) = play_with_probabilities(&Costs { verify_us, ..costs() }, 0.5);
        assert!(speed(&seen) > 0.97 * best, "{:.3} of plain", speed(&seen) / best);
    }

    #[test]
    fn the_same_observations_give_the_same_choices() {
        let run = || {
            let mut policy = Policy::new(costs(), 2);
            let (seen, changes) = play(&mut World::new([0.5; 8]), &mut policy, 300);
            (seen, changes)
        };
        assert_eq!(run(), run());
    }

    #[test]
    fn costly_rows_make_it_decode_plainly() {
        // every row costs a pass of its own: no acceptance can pay
        let verify_us = (1..=9).map(|m| f64::from(m) * 3000.0).collect();
        let costs = Costs { verify_us, ..costs() };
        let mut world = World { costs: costs.clone(), ..World::new([0.9; 8]) };
        let (seen, _) = play(&mut world, &mut Policy::new(costs, 4), 200);
        assert!(seen.iter().all(|s| s.asked == 0));
    }
}
