//! The account of speed: what verification costs, what drafts are worth, and which k follows.
//!
//! Invariant: pure arithmetic on measured numbers. The model (Leviathan et al., 2023, section 3.3,
//! with measured costs in place of constants): a round of k drafts yields
//! `E(k) = 1 + Σ_{i ≤ k} Π_{j ≤ i} a_j` tokens and takes `T(k + 1) + b + k · d + o`, b being the pass of a
//! block drafter; plain decoding takes `T(1) + o` a token. The caller measures the numbers.

use serde::{Serialize, Serializer};

use draftscope_protocol::{Costs, Lane};

use super::{LaneStats, Turn};

/// What one draft length yields.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Worth {
    /// k.
    pub draft_len: usize,
    /// E(k): tokens per round, bonus or recovered included.
    pub tokens_per_round: f64,
    /// Time of a round in plain tokens.
    pub round_cost: f64,
    /// E(k) ÷ round cost.
    pub speedup: f64,
    /// Acceptance a, the same at every position, at which this k is as fast as plain decoding; `None` if even a = 1 is
    /// too little.
    pub break_even: Option<f64>,
}

/// What limits the speed most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum Factor {
    /// Drafts rejected at a position.
    Acceptance {
        /// 1 = the first draft.
        position: usize,
    },
    /// Rows beyond the first in the target's pass.
    Verify,
    /// Drafting.
    Draft,
    /// Work outside model passes.
    Overhead,
}

/// The factor that brings the most speed if its loss is halved.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// Which.
    #[serde(flatten)]
    pub factor: Factor,
    /// Speedup over today's plain decoding at the k that is then best.
    pub speedup_if_halved: f64,
}

/// Predictions, and what follows from them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Account {
    /// What passes cost.
    pub costs: Costs,
    /// `a_j`: the share of drafts accepted at position j among rounds that accepted all before it; 0 also where nothing
    /// was tested, which is reported as null.
    #[serde(serialize_with = "write_tested")]
    pub acceptance: Vec<f64>,
    /// Every k, from 1, that was both timed and tried.
    pub worths: Vec<Worth>,
    /// k of the largest speedup; 0 when plain decoding is fastest.
    pub best: usize,
    /// What limits the speed; `None` if nothing was drafted.
    pub limit: Option<Limit>,
    /// The account in one sentence.
    pub sentence: String,
}

/// `a_j` for j = 1, 2, …: among rounds that were to draft j tokens and accepted the first j − 1, the share that
/// accepted draft j. A round whose drafter proposed nothing counts as a rejected draft. Copies after k drafts are left out: they
/// are made only where they promise much, so their share says nothing of the rounds without them.
#[must_use]
pub fn accepted(stats: &LaneStats) -> Vec<f64> {
    let most = if stats.copies().drafted > 0 { stats.longest_asked() } else { usize::MAX };
    let pairs = stats.accepted_per_pos().iter().zip(stats.reached_per_pos()).take(most);
    pairs.map(|(accepted, reached)| *accepted as f64 / (*reached).max(1) as f64).collect()
}

/// `a_j` from the shares that were reached.
#[must_use]
pub fn acceptance(reach: &[f64]) -> Vec<f64> {
    let before = std::iter::once(1.0).chain(reach.iter().copied());
    reach.iter().zip(before).map(|(now, before)| if before > 0.0 { (now / before).min(1.0) } else { 0.0 }).collect()
}

/// `a_j` as reported: `None` after a position at which nothing was accepted, because nothing was tested there.
pub fn tested(acceptance: &[f64]) -> impl Iterator<Item = Option<f64>> {
    let last = acceptance.iter().position(|a| *a <= 0.0).unwrap_or(acceptance.len());
    acceptance.iter().enumerate().map(move |(i, a)| (i <= last).then_some(*a))
}

fn write_tested<S: Serializer>(acceptance: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(tested(acceptance))
}

impl Account {
    /// Computes the account from measured costs and the share of drafts accepted at each position among those that
    /// reached it.
    #[must_use]
    pub fn new(costs: Costs, acceptance: Vec<f64>) -> Self {
        let worths = worths(&costs, &acceptance);
        let best = worths.iter().copied().max_by(|a, b| a.speedup.total_cmp(&b.speedup));
        let limit = limit(&costs, &acceptance);
        Self {
            sentence: sentence(&costs, &acceptance, best, limit),
            best: best.filter(|best| best.speedup > 1.0).map_or(0, |best| best.draft_len),
            limit,
            worths,
            acceptance,
            costs,
        }
    }

    /// The same with a best k that is known better than from the formula, e.g. from a simulation. If it does not pay,
    /// it is the k that comes closest.
    #[must_use]
    pub fn with_best(mut self, best: Worth) -> Self {
        self.best = if best.speedup > 1.0 { best.draft_len } else { 0 };
        self.sentence = sentence(&self.costs, &self.acceptance, Some(best), self.limit);
        self
    }

    /// The account of one turn, from its [pass costs](super::PassCosts). `None` until a pass over one row and a round
    /// with drafts were measured next to each other, and if [other work disturbed](Turn::disturbance) them.
    #[must_use]
    pub fn of_turn(turn: &Turn) -> Option<Self> {
        let stats = turn.answer(Lane::Speculative).stats();
        let costs = turn.pass_costs().filter(|_| stats.drafted() > 0 && turn.disturbance().is_none())?.costs()?;
        Some(Self::new(costs, accepted(stats)))
    }

    /// The prediction for a k.
    #[must_use]
    pub fn worth(&self, draft_len: usize) -> Option<&Worth> {
        self.worths.iter().find(|worth| worth.draft_len == draft_len)
    }
}

/// The prediction for every k, from 1, that was both timed and tried.
#[must_use]
pub fn worths(costs: &Costs, acceptance: &[f64]) -> Vec<Worth> {
    let Some(plain) = costs.round_us(0).filter(|us| *us > 0.0) else {
        return Vec::new();
    };
    let (mut reach, mut tokens) = (1.0, 1.0);
    let worth = |(k, round): (usize, f64)| {
        reach *= acceptance[k - 1];
        tokens += reach;
        let cost = round / plain;
        Worth {
            draft_len: k,
            tokens_per_round: tokens,
            round_cost: cost,
            speedup: tokens / cost,
            break_even: break_even(k, cost),
        }
    };
    (1..=acceptance.len()).map_while(|k| Some((k, costs.round_us(k)?))).map(worth).collect()
}

/// The speedup at this k if the target accepted the same share `a` of the drafts at every position; `None` if no round of
/// this k, or no plain one, was timed.
#[must_use]
pub fn speedup_at(costs: &Costs, draft_len: usize, a: f64) -> Option<f64> {
    let worths = worths(costs, &vec![a; draft_len]);
    worths.last().filter(|worth| worth.draft_len == draft_len).map(|worth| worth.speedup)
}

/// The acceptance, the same at every position, at which this k is as fast as plain decoding, 0 to 1; `None` if even 1 is
/// too little, or no round of this k, or no plain one, was timed.
#[must_use]
pub fn break_even_at(costs: &Costs, draft_len: usize) -> Option<f64> {
    let plain = costs.round_us(0).filter(|us| *us > 0.0)?;
    break_even(draft_len, costs.round_us(draft_len)? / plain)
}

/// E: tokens of a round of k drafts, each accepted with probability `a` if all before it were; the target's own included.
/// `1 + a + a² + … + a^k` (Leviathan et al., 2023, section 3.1).
#[must_use]
pub fn tokens_at(draft_len: usize, a: f64) -> f64 {
    (0..=draft_len).map(|i| a.powi(i as i32)).sum()
}

/// The a in [0, 1] with `1 + a + a² + … + a^k = cost`, by bisection; the left side rises with a.
fn break_even(k: usize, cost: f64) -> Option<f64> {
    if cost > tokens_at(k, 1.0) {
        return None;
    }
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if tokens_at(k, middle) < cost { low = middle } else { high = middle }
    }
    Some(high)
}

/// Halves each loss in turn and returns the one that gains most.
fn limit(costs: &Costs, acceptance: &[f64]) -> Option<Limit> {
    let plain = costs.round_us(0)?;
    let fastest = |costs: &Costs, acceptance: &[f64]| {
        let own = costs.round_us(0).unwrap_or(plain);
        // against today's plain decoding, which cheaper overhead would speed up too
        worths(costs, acceptance).iter().map(|w| w.speedup * plain / own).fold(0.0, f64::max)
    };
    let one = costs.verify_us[0];
    let rows = costs.verify_us.iter().map(|t| one + (t - one) / 2.0).collect();
    let halved_drafting =
        Costs { draft_us: costs.draft_us / 2.0, draft_pass_us: costs.draft_pass_us / 2.0, ..costs.clone() };
    let cheaper = [
        (Factor::Verify, Costs { verify_us: rows, ..costs.clone() }),
        (Factor::Draft, halved_drafting),
        (Factor::Overhead, Costs { overhead_us: costs.overhead_us / 2.0, ..costs.clone() }),
    ];
    let cheaper = cheaper.map(|(factor, costs)| (factor, fastest(&costs, acceptance)));
    let better = (0..acceptance.len()).map(|i| {
        let mut better = acceptance.to_vec();
        better[i] += (1.0 - better[i]) / 2.0;
        (Factor::Acceptance { position: i + 1 }, fastest(costs, &better))
    });
    let all = better.chain(cheaper);
    let most = all.reduce(|most, this| if this.1 > most.1 { this } else { most })?;
    (!acceptance.is_empty()).then_some(Limit { factor: most.0, speedup_if_halved: most.1 })
}

/// One sentence with the best k and what limits the speed.
fn sentence(costs: &Costs, acceptance: &[f64], best: Option<Worth>, limit: Option<Limit>) -> String {
    let (Some(best), Some(first), Some(limit)) = (best, acceptance.first(), limit) else {
        return "nothing was drafted, so there is nothing to explain".to_owned();
    };
    let plain = costs.verify_us[0];
    let k = best.draft_len;
    let rows = format!("verifying {} rows costs {:.2}× one row", k + 1, costs.verify_us[k] / plain);
    let drafts = match costs.draft_pass_us > 0.0 {
        true => format!("the pass that drafts {k} costs {:.0} % of it", costs.drafting_us(k) / plain * 100.0),
        false => format!("a drafted token costs {:.0} % of it", costs.draft_us / plain * 100.0),
    };
    let accepted = format!("position 1 is accepted in {:.0} % of rounds", first * 100.0);
    let end = if best.speedup < 1.0 {
        format!("no k is predicted to pay here, k = {k} comes closest with {:.2}×: use plain decoding", best.speedup)
    } else {
        format!("k = {k} is predicted to be best here, {:.2}× plain", best.speedup)
    };
    let halved = limit.speedup_if_halved;
    let what = match limit.factor {
        Factor::Acceptance { position } => {
            format!("acceptance at position {position} ({halved:.2}× if half as many drafts were rejected there)")
        }
        Factor::Verify => format!("the cost of verifying ({halved:.2}× if more rows cost half as much more)"),
        Factor::Draft => format!("the cost of drafting (half of it: {halved:.2}×)"),
        Factor::Overhead => format!("the work outside model passes (half of it: {halved:.2}×)"),
    };
    format!("{rows}, {drafts}; {accepted}: {end}; what limits it most is {what}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Round;
    use draftscope_protocol::{
        Copied, Drafted, Judgement, NextKind, Outcome, Piece, RoundStarted, TokenId, Verification,
    };

    fn costs() -> Costs {
        Costs {
            verify_us: vec![3000.0, 3060.0, 3300.0, 3600.0],
            draft_us: 240.0,
            draft_pass_us: 0.0,
            settle_us: 0.0,
            overhead_us: 60.0,
        }
    }

    #[test]
    fn at_the_break_even_acceptance_the_speedup_is_one() {
        for k in 1..=3 {
            let a = break_even_at(&costs(), k).unwrap();
            assert!((speedup_at(&costs(), k, a).unwrap() - 1.0).abs() < 1e-9, "k = {k}, a = {a}");
            // E(1) is k + 1, E(0) is 1
            let cost = costs().round_us(k).unwrap() / costs().round_us(0).unwrap();
            assert!((speedup_at(&costs(), k, 1.0).unwrap() - (k + 1) as f64 / cost).abs() < 1e-9);
            assert!((speedup_at(&costs(), k, 0.0).unwrap() - 1.0 / cost).abs() < 1e-9);
            assert!((speedup_at(&costs(), k, 0.6).unwrap() - tokens_at(k, 0.6) / cost).abs() < 1e-9);
        }
        assert_eq!(
            (speedup_at(&costs(), 4, 0.5), break_even_at(&costs(), 4)),
            (None, None),
            "no pass of 5 rows was timed"
        );
    }

    #[test]
    fn what_was_not_tested_is_not_reported_as_zero() {
        let reported = |reach: &[f64]| tested(&acceptance(reach)).collect::<Vec<_>>();
        assert_eq!(reported(&[0.5, 0.0, 0.0, 0.0]), [Some(0.5), Some(0.0), None, None]);
        assert_eq!(reported(&[0.5, 0.25]), [Some(0.5), Some(0.5)]);
        let account = Account::new(costs(), acceptance(&[0.5, 0.0, 0.0]));
        let written = serde_json::to_string(&account).unwrap();
        assert!(written.contains(r#""acceptance":[0.5,0.0,null]"#), "{written}");
    }

    #[test]
    fn tokens_cost_and_speedup_follow_the_formula() {
        let acceptance = acceptance(&[0.6, 0.3, 0.1, 0.05]);
        for (got, want) in acceptance.iter().zip([0.6, 0.5, 1.0 / 3.0, 0.5]) {
            assert!((got - want).abs() < 1e-12);
        }
        let worths = worths(&costs(), &acceptance);
        assert_eq!(worths.len(), 3, "k = 4 was not timed");
        let two = worths[1];
        assert!((two.tokens_per_round - 1.9).abs() < 1e-12);
        assert!((two.round_cost - (3300.0 + 480.0 + 60.0) / 3060.0).abs() < 1e-12);
        assert!((two.speedup - two.tokens_per_round / two.round_cost).abs() < 1e-12);
        let a = two.break_even.unwrap();
        assert!((1.0 + a + a * a - two.round_cost).abs() < 1e-9);
        assert_eq!(break_even(2, 3.5), None);
    }

    #[test]
    fn a_block_costs_one_pass_whatever_k_is() {
        let block = Costs { draft_us: 20.0, draft_pass_us: 600.0, ..costs() };
        let worths = worths(&block, &acceptance(&[0.6, 0.3, 0.1]));
        for (worth, want) in worths.iter().zip([3060.0 + 620.0, 3300.0 + 640.0, 3600.0 + 660.0]) {
            assert!((worth.round_cost - (want + 60.0) / 3060.0).abs() < 1e-12, "{worth:?}");
        }
        let text = Account::new(block, acceptance(&[0.6, 0.3, 0.1])).sentence;
        assert!(text.contains("the pass that drafts 2 costs 21 % of it"), "{text}");
        let costly = Costs { draft_us: 0.0, draft_pass_us: 9000.0, ..costs() };
        assert_eq!(Account::new(costly, vec![0.97; 3]).limit.unwrap().factor, Factor::Draft);
    }

    #[test]
    fn positions_count_the_rounds_that_got_there() {
        let draft = Drafted { token: Piece::new(TokenId(1), "a"), q: Some(0.5), took_us: 1, ..Drafted::default() };
        let round = |draft_len: u8, kept: usize| {
            let outcome = |index| if index < kept { Outcome::Accepted } else { Outcome::Rejected };
            let judgement =
                |index| Judgement { p: Some(0.5), q: Some(0.5), u: None, limit: None, outcome: outcome(index) };
            let judgements = (0..usize::from(draft_len)).map(judgement).collect();
            Round {
                started: RoundStarted { draft_len, ..RoundStarted::default() },
                drafts: vec![draft.clone(); draft_len.into()],
                verdict: Some(Verification::new(judgements, TokenId(1), NextKind::Bonus, None)),
                ..Round::default()
            }
        };
        let mut stats = LaneStats::default();
        for (draft_len, kept) in [(1, 1), (1, 1), (2, 2), (2, 0)] {
            stats.add(&round(draft_len, kept), false);
        }
        assert_eq!(accepted(&stats), [0.75, 1.0], "the second draft was accepted wherever the first was");
        // copies follow k drafts where they promise much: what they bring is no acceptance of a longer draft
        let copied = Copied { from: 3, len: 9, chance: Some(0.9) };
        let mut long = round(5, 5);
        long.started.draft_len = 2;
        long.drafts[2..].iter_mut().for_each(|draft| draft.copied = Some(copied));
        stats.add(&long, false);
        assert_eq!((stats.accepted_per_pos().len(), accepted(&stats)), (5, vec![0.8, 1.0]));
    }

    #[test]
    fn the_sentence_names_the_best_k_and_the_limit() {
        let account = Account::new(costs(), acceptance(&[0.6, 0.3, 0.1]));
        let text = &account.sentence;
        assert!(text.contains("k = 2 is predicted to be best here, 1.51× plain"), "{text}");
        assert_eq!((account.best, account.limit.unwrap().factor), (2, Factor::Acceptance { position: 1 }));
        assert!(text.contains("what limits it most is acceptance at position 1"), "{text}");
        let never = Account::new(costs(), vec![0.01, 0.0, 0.0]);
        assert!(never.sentence.contains("use plain decoding") && never.best == 0, "{}", never.sentence);
        assert!(Account::new(costs(), Vec::new()).sentence.contains("nothing was drafted"));
    }

    #[test]
    fn a_best_k_that_is_known_better_is_what_the_sentence_names() {
        let account = Account::new(costs(), acceptance(&[0.6, 0.3, 0.1]));
        let known = Worth { speedup: 1.42, ..*account.worth(1).unwrap() };
        let text = account.clone().with_best(known).sentence;
        assert!(
            text.contains("verifying 2 rows") && text.contains("k = 1 is predicted to be best here, 1.42× plain"),
            "{text}"
        );
        let lost = account.with_best(Worth { speedup: 0.9, ..known });
        assert!(lost.sentence.contains("k = 1 comes closest with 0.90×") && lost.best == 0, "{}", lost.sentence);
    }

    #[test]
    fn each_factor_can_be_the_limit() {
        let factor = |costs: Costs, acceptance: [f64; 3]| Account::new(costs, acceptance.into()).limit.unwrap().factor;
        let dear_rows = Costs { verify_us: vec![1000.0, 2000.0, 3000.0, 4000.0], draft_us: 10.0, ..costs() };
        assert_eq!(factor(dear_rows, [0.95; 3]), Factor::Verify);
        let dear_drafts = Costs { draft_us: 3000.0, ..costs() };
        assert_eq!(factor(dear_drafts, [0.97; 3]), Factor::Draft);
        let busy = Costs { overhead_us: 9000.0, ..costs() };
        assert_eq!(factor(busy, [0.99; 3]), Factor::Overhead);
        assert_eq!(factor(costs(), [0.95, 0.2, 0.9]), Factor::Acceptance { position: 2 });
    }

    #[test]
    fn a_turn_accounts_for_itself_from_its_own_rounds() {
        let mut session = crate::Session::new();
        crate::fixture::first_turn().events.iter().for_each(|event| session.apply(event));
        let account = Account::of_turn(session.turn().unwrap()).unwrap();
        // the plain lane's rows take 10.8 ms, the speculative lane's passes over 4 rows 13.5 ms
        assert_eq!(account.costs.verify_us, [10_800.0, 11_700.0, 12_600.0, 13_500.0]);
        assert!((account.costs.draft_us - 900.0).abs() < 1e-9 && (account.costs.overhead_us - 700.0).abs() < 1e-9);
        // of seven rounds four accepted the first draft, all of these the second, two the third
        for (got, want) in account.acceptance.iter().zip([4.0 / 7.0, 1.0, 0.5]) {
            assert!((got - want).abs() < 1e-12, "{account:?}");
        }
        let three = account.worth(3).unwrap();
        assert!((three.tokens_per_round - 17.0 / 7.0).abs() < 1e-12);
        assert!((three.round_cost - (13_500.0 + 2_700.0 + 700.0) / 11_500.0).abs() < 1e-12);
    }
}
