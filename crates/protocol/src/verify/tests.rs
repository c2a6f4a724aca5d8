//! Tests every rule on distributions made by hand and at random.

#[path = "../../../../tests/common/chi_square.rs"]
#[allow(dead_code, unreachable_pub)] // other tests compare two samples
mod chi_square;

use std::collections::BTreeMap;

use chi_square::{ChiSquare, ONCE_IN_10_000};
use proptest::prelude::*;

use super::super::distribution::Distribution;
use super::super::random::{Draws, Purpose, SeededDraws};
use super::*;
use crate::{Departure, Leniency, NextKind, Outcome, TokenId};

fn ctx(draws: &dyn Draws, position: usize, greedy: bool) -> RoundCtx<'_> {
    let leniency = Leniency::default();
    RoundCtx { position, draft_len: 8, greedy, fresh: None, leniency, draws }
}

fn draft(token: u32) -> Draft {
    Draft::certain(TokenId(token))
}

fn lossless() -> impl Iterator<Item = VerifyRule> {
    VerifyRule::ALL.iter().copied().filter(|rule| rule.is_lossless())
}

fn lenient() -> impl Iterator<Item = VerifyRule> {
    VerifyRule::ALL.iter().copied().filter(|rule| !rule.is_lossless())
}

#[test]
fn drafts_of_the_oracle_must_be_judged_by_independent_draws() {
    // the oracle proposes, as certain, the tokens that plain decoding picks with `own` draws
    let shares = |is_independent: bool| {
        let draws = SeededDraws::new(11);
        let own = if is_independent { draws.independent() } else { draws.clone() };
        let p = Distribution::from_weights(&[1.0, 1.0, 1.0]);
        let mut counts = [0.0; 3];
        for position in 0..30_000 {
            let drafts = [draft(p.pick(own.uniform(Purpose::Next, position)).0)];
            let verdict =
                verifier(VerifyRule::Rejection).verify(&ctx(&draws, position, false), &drafts, &[p.clone(), p.clone()]);
            let token = if verdict.accepted() == 1 { drafts[0].token } else { verdict.next };
            counts[token.index()] += 1.0 / 30_000.0;
        }
        counts
    };
    assert!(shares(true).iter().all(|share| (share - 1.0 / 3.0_f64).abs() < 0.01), "{:?}", shares(true));
    assert!(shares(false).iter().any(|share| (share - 1.0 / 3.0_f64).abs() > 0.1), "{:?}", shares(false));
}

#[test]
fn greedy_accepts_the_matching_prefix() {
    let draws = SeededDraws::new(0);
    let rows: Vec<_> = [1u32, 2, 3, 0].map(|t| Distribution::certain(TokenId(t))).into();
    for rule in lossless() {
        let verify = |drafts: &[Draft]| verifier(rule).verify(&ctx(&draws, 0, true), drafts, &rows);
        let all = verify(&[draft(1), draft(2), draft(3)]);
        assert_eq!((all.accepted(), all.next, all.next_kind), (3, TokenId(0), NextKind::Bonus));
        let one = verify(&[draft(1), draft(9), draft(3)]);
        assert_eq!((one.accepted(), one.tested(), one.next), (1, 2, TokenId(2)));
        assert_eq!(one.next_kind, NextKind::Recovered);
        assert_eq!(one.judgements[2].outcome, Outcome::NotReached);
        let none = verify(&[]);
        assert_eq!((none.accepted(), none.next, none.next_kind), (0, TokenId(1), NextKind::Bonus));
        assert!([all, one, none].iter().all(|verdict| verdict.lossless && verdict.departures.is_empty()));
    }
}

#[test]
fn greedy_follows_the_targets_choices_in_a_tree() {
    let draws = SeededDraws::new(0);
    // anchor ─ 1 ─ 5 · anchor ─ 2 ─ (6, 7 ─ 8); rows: anchor, 1, 2, 5, 6, 7, 8
    let drafts = [(1, 0), (2, 0), (5, 1), (6, 2), (7, 2), (8, 5)].map(|(token, row)| draft(token).at_row(row));
    let rows = |next: [u32; 7]| next.map(|t| Distribution::certain(TokenId(t)));
    for rule in lossless() {
        let verify = |next| verifier(rule).verify(&ctx(&draws, 0, true), &drafts, &rows(next));
        let deep = verify([2, 0, 7, 0, 0, 8, 9]);
        assert_eq!(deep.path().collect::<Vec<_>>(), [1, 4, 5]);
        assert_eq!((deep.next, deep.next_kind, deep.tested()), (TokenId(9), NextKind::Bonus, 5));
        let outcomes: Vec<_> = deep.judgements.iter().map(|j| j.outcome).collect();
        use Outcome::{Accepted, NotReached, Rejected};
        assert_eq!(outcomes, [Rejected, Accepted, NotReached, Rejected, Accepted, Accepted]);
        let stuck = verify([2, 0, 4, 0, 0, 8, 9]);
        assert_eq!(stuck.path().collect::<Vec<_>>(), [1]);
        assert_eq!((stuck.next, stuck.next_kind), (TokenId(4), NextKind::Recovered));
        let none = verify([3, 0, 4, 0, 0, 8, 9]);
        assert_eq!((none.accepted(), none.tested(), none.next), (0, 2, TokenId(3)));
    }
}

#[test]
fn later_drafts_of_one_row_record_the_ratio_that_judged_them() {
    let draws = SeededDraws::new(3);
    let (p, q) = (Distribution::from_weights(&[0.1, 0.5, 0.4]), Distribution::from_weights(&[0.5, 0.3, 0.2]));
    let drafts = [0, 1].map(|token| Draft::drawn(TokenId(token), q.clone()).at_row(0));
    let rows = vec![p; 3];
    let mut judged = 0;
    for position in 0..200 {
        let verdict = Rejection.verify(&ctx(&draws, position, false), &drafts, &rows);
        let [first, second] = [0, 1].map(|index| verdict.judgements[index]);
        assert_eq!(first.limit, None, "it is p/q");
        let Some(limit) = second.limit else {
            assert_eq!(second.outcome, Outcome::NotReached);
            continue;
        };
        // max(0, p − q) leaves 0.5 and 0.5 of the second and third; without the first, q is 0.6 and 0.4
        assert!((limit - 0.5 / 0.6).abs() < 1e-5, "{limit}");
        assert_eq!(second.outcome == Outcome::Accepted, second.u.unwrap() < limit);
        judged += 1;
    }
    assert!(judged > 20, "{judged}");
}

#[test]
fn exact_commits_what_plain_decoding_draws() {
    let p = Distribution::from_weights(&[0.4, 0.3, 0.2, 0.1]);
    for seed in 0..200 {
        let draws = SeededDraws::new(seed);
        let plain: Vec<TokenId> = (0..4).map(|i| p.pick(draws.uniform(Purpose::Next, 5 + i))).collect();
        let rows = vec![p.clone(); 4];
        let drafts = [draft(0), draft(1), draft(0)];
        let verdict = Exact.verify(&ctx(&draws, 5, false), &drafts, &rows);
        let mut committed: Vec<TokenId> = drafts[..verdict.accepted()].iter().map(|d| d.token).collect();
        committed.push(verdict.next);
        assert_eq!(committed, plain[..committed.len()]);
    }
}

fn chi_square(counts: &[u32], p: &Distribution, n: usize) -> ChiSquare {
    let cell = |(token, p): (TokenId, f32)| (f64::from(counts[token.index()]), f64::from(p) * n as f64);
    ChiSquare::against(p.entries().map(cell))
}

/// Draws one draft from q, verifies it against p, and counts the first committed token.
fn first_token_counts(rule: VerifyRule, p: &Distribution, q: &Distribution, n: usize) -> Vec<u32> {
    let draws = SeededDraws::new(11);
    let rows = [p.clone(), p.clone()];
    let mut counts = vec![0; 8];
    for position in 0..n {
        let fresh = (rule == VerifyRule::Block).then_some(OfRound { start: position, first: 0 });
        let ctx = RoundCtx { fresh, ..ctx(&draws, position, false) };
        let token = q.pick(ctx.draw(Purpose::Draft, 0));
        let verdict = verifier(rule).verify(&ctx, &[Draft::drawn(token, q.clone())], &rows);
        let first = if verdict.accepted() == 1 { token } else { verdict.next };
        counts[first.index()] += 1;
    }
    counts
}

#[test]
fn the_chi_square_test_can_fail() {
    // accepting every draft commits q instead of p; the test above must notice
    let (p, q) = (Distribution::from_weights(&[0.5, 0.5]), Distribution::from_weights(&[0.53, 0.47]));
    let draws = SeededDraws::new(3);
    let mut counts = vec![0; 2];
    for position in 0..24_000 {
        counts[q.pick(draws.uniform(Purpose::Draft, position)).index()] += 1;
    }
    let test = chi_square(&counts, &p, 24_000);
    assert!(test.exceeds(ONCE_IN_10_000), "{test:?}");
}

/// A language of three tokens in which the next depends on the last.
struct Toy([[f32; 3]; 4]);

impl Toy {
    const TARGET: Self = Self([[0.5, 0.3, 0.2], [0.1, 0.7, 0.2], [0.3, 0.3, 0.4], [0.6, 0.1, 0.3]]);
    const DRAFTER: Self = Self([[0.2, 0.5, 0.3], [0.4, 0.2, 0.4], [0.5, 0.3, 0.2], [0.1, 0.6, 0.3]]);

    fn next(&self, text: &[u32]) -> Distribution {
        Distribution::from_weights(&self.0[text.last().map_or(0, |token| *token as usize + 1)])
    }

    /// Probability of a whole text.
    fn probability(&self, text: &[u32]) -> f64 {
        (0..text.len()).map(|i| f64::from(self.next(&text[..i]).prob(TokenId(text[i])))).product()
    }
}

/// How the toy's drafts are made.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// Three drafts, each drawn after the one before.
    Chain,
    /// Three drafts, always the most probable token, which the rules treat as certain.
    Argmax,
    /// One to three alternatives per row, drawn without replacement, several levels deep.
    Tree,
}

/// Drafts after `text`, and the path to each row.
fn toy_drafts(shape: Shape, ctx: &RoundCtx<'_>, text: &[u32]) -> (Vec<Draft>, Vec<Vec<u32>>) {
    let mut paths = vec![text.to_vec()];
    let mut drafts = Vec::new();
    let alternatives: &[usize] = match shape {
        Shape::Chain | Shape::Argmax => &[1, 1, 1],
        Shape::Tree => &[2, 3, 1, 0, 2],
    };
    for (row, count) in alternatives.iter().enumerate() {
        let Some(path) = paths.get(row).cloned() else { break };
        let q = Toy::DRAFTER.next(&path);
        let mut left = q.clone();
        for _ in 0..*count {
            let u = ctx.draw(Purpose::Draft, drafts.len());
            let token = if matches!(shape, Shape::Argmax) { q.argmax() } else { left.pick(u) };
            left = left.without(token);
            let draft = Draft { drawn: !matches!(shape, Shape::Argmax), ..Draft::drawn(token, q.clone()) };
            drafts.push(if matches!(shape, Shape::Tree) { draft.at_row(row) } else { draft });
            paths.push(path.iter().copied().chain([token.0]).collect());
        }
    }
    (drafts, paths)
}

/// Writes `len` tokens in as many rounds as needed; `fresh` says whether the rounds use fresh draws.
fn write(rule: VerifyRule, shape: Shape, (seed, len): (u64, usize), fresh: bool) -> (Vec<u32>, usize) {
    let draws = SeededDraws::new(seed);
    let (mut text, mut accepted) = (Vec::new(), 0);
    for round in 1.. {
        let fresh = fresh.then_some(OfRound { start: text.len(), first: 0 });
        let ctx = RoundCtx { fresh, ..ctx(&draws, text.len(), false) };
        let (drafts, paths) = toy_drafts(shape, &ctx, &text);
        let rows: Vec<_> = paths.iter().map(|path| Toy::TARGET.next(path)).collect();
        let verdict = verifier(rule).verify(&ctx, &drafts, &rows);
        if round == 1 {
            accepted = verdict.accepted();
        }
        let path: Vec<usize> = verdict.path().collect();
        text.extend(path.iter().map(|index| drafts[*index].token.0));
        text.push(verdict.next.0);
        if text.len() >= len {
            break;
        }
    }
    text.truncate(len);
    (text, accepted)
}

/// The test of the distribution of whole texts of four tokens, and the mean number of accepted drafts in the first round.
fn text_chi_square(rule: VerifyRule, shape: Shape, fresh: bool, n: u64) -> (ChiSquare, f64) {
    let mut counts = BTreeMap::<Vec<u32>, f64>::new();
    let mut accepted = 0;
    for seed in 0..n {
        let (text, first) = write(rule, shape, (seed, 4), fresh);
        *counts.entry(text).or_default() += 1.0;
        accepted += first;
    }
    let texts = (0..81u32).map(|i| [i / 27, i / 9 % 3, i / 3 % 3, i % 3]);
    let count = |text: [u32; 4]| counts.get(&text[..]).copied().unwrap_or(0.0);
    let cells = texts.map(|text| (count(text), Toy::TARGET.probability(&text) * n as f64));
    (ChiSquare::against(cells), accepted as f64 / n as f64)
}

#[test]
fn whole_texts_over_many_rounds_follow_the_target_for_every_lossless_rule_and_shape() {
    for rule in lossless() {
        for shape in [Shape::Chain, Shape::Argmax, Shape::Tree] {
            let fresh = rule == VerifyRule::Block || matches!(shape, Shape::Tree);
            let (test, _) = text_chi_square(rule, shape, fresh, 20_000);
            assert!(!test.exceeds(ONCE_IN_10_000), "{rule}, {shape:?}: {test:?}");
        }
    }
}

#[test]
fn block_needs_fresh_draws_and_accepts_more_than_rejection() {
    let (test, block) = text_chi_square(VerifyRule::Block, Shape::Chain, false, 20_000);
    assert!(test.exceeds(ONCE_IN_10_000), "repeated draws must be detected, or the test above cannot fail: {test:?}");
    let (_, one_by_one) = text_chi_square(VerifyRule::Rejection, Shape::Chain, false, 20_000);
    assert!(block > one_by_one + 0.01, "block {block}, one by one {one_by_one}");
    let (_, tree) = text_chi_square(VerifyRule::Rejection, Shape::Tree, true, 20_000);
    assert!(tree > one_by_one + 0.1, "tree {tree}, chain {one_by_one}");
}

#[test]
fn the_papers_example_accepts_11_ninths_in_a_block_and_10_ninths_one_by_one() {
    // Sun et al., section 2: p = (1/3, 2/3), q = (2/3, 1/3), two drafts
    let (p, q) = (Distribution::from_weights(&[1.0, 2.0]), Distribution::from_weights(&[2.0, 1.0]));
    let mean = |rule: VerifyRule| {
        let draws = SeededDraws::new(5);
        let accepted = (0..60_000usize).map(|trial| {
            let ctx = RoundCtx { fresh: Some(OfRound { start: trial, first: 0 }), ..ctx(&draws, trial, false) };
            let drafts = [0, 1].map(|i| Draft::drawn(q.pick(ctx.draw(Purpose::Draft, i)), q.clone()));
            verifier(rule).verify(&ctx, &drafts, &[p.clone(), p.clone(), p.clone()]).accepted()
        });
        accepted.sum::<usize>() as f64 / 60_000.0
    };
    let (block, one_by_one) = (mean(VerifyRule::Block), mean(VerifyRule::Rejection));
    assert!((block - 11.0 / 9.0).abs() < 0.015, "{block}");
    assert!((one_by_one - 10.0 / 9.0).abs() < 0.015, "{one_by_one}");
}

#[test]
fn lenient_rules_accept_more_and_record_departures() {
    let draws = SeededDraws::new(0);
    let p = Distribution::from_weights(&[0.50, 0.30, 0.15, 0.05]);
    let rows = vec![p; 3];
    let leniency = Leniency { epsilon: 0.2, delta: 1.0, top_k: 2, threshold: 0.3, confidence: 0.9 };
    let ctx = RoundCtx { leniency, ..ctx(&draws, 0, true) };
    for rule in lenient() {
        // the first is the target's choice, the second its second best, the third improbable
        let sure = Distribution::from_weights(&[0.02, 0.96, 0.01, 0.01]);
        let drafts = [draft(0), Draft::drawn(TokenId(1), sure), draft(3)];
        let verdict = verifier(rule).verify(&ctx, &drafts, &rows[..]);
        assert!(!verdict.lossless, "{rule}");
        assert_eq!(verdict.accepted(), 2, "{rule}");
        assert_eq!(verdict.departures, [Departure { index: 1, instead: TokenId(0) }], "{rule}");
        assert_eq!((verdict.next, verdict.next_kind), (TokenId(0), NextKind::Recovered), "{rule}");
    }
    // nothing else passes if p is certain, nor without a q
    let certain = [Distribution::certain(TokenId(0)), Distribution::certain(TokenId(0))];
    for rule in lenient() {
        let verdict = verifier(rule).verify(&ctx, &[draft(1)], &certain);
        assert_eq!((verdict.accepted(), verdict.departures.len()), (0, 0), "{rule}");
    }
}

#[test]
fn typical_acceptance_has_a_lower_limit_if_the_target_is_unsure() {
    let draws = SeededDraws::new(0);
    let leniency = Leniency { epsilon: 0.3, delta: 0.3, ..Leniency::default() };
    let ctx = RoundCtx { leniency, ..ctx(&draws, 0, true) };
    let accepts = |weights: &[f32], token: u32| {
        let p = Distribution::from_weights(weights);
        Typical.verify(&ctx, &[draft(token)], &[p.clone(), p]).accepted() == 1
    };
    let flat = [1.0; 16]; // entropy ln 16: the limit is 0.3 / 16
    assert!(accepts(&flat, 9));
    assert!(!accepts(&[0.85, 0.15], 1), "0.15 is below 0.3 e^(-0.42) = 0.197");
    assert!(accepts(&[0.65, 0.35], 1), "0.35 is above 0.3 e^(-0.65) = 0.157");
}

fn weights(n: usize) -> impl Strategy<Value = Distribution> {
    prop::collection::vec(0.0f32..1.0, n)
        .prop_filter("some mass", |w| w.iter().sum::<f32>() > 0.01)
        .prop_map(|w| Distribution::from_weights(&w))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    /// Σ over drafts of q(x)·accept(x) + P(reject)·residual = p, summed exactly over a grid of draws.
    #[test]
    fn any_p_and_q_give_p(p in weights(5), q in weights(5)) {
        for token in 0..5u32 {
            let token = TokenId(token);
            let kept = p.prob(token).min(q.prob(token));
            let rejected: f32 = (0..5).map(TokenId).map(|t| (q.prob(t) - p.prob(t)).max(0.0)).sum();
            let share = kept + if rejected > 0.0 { rejected * p.residual(&q).0.prob(token) } else { 0.0 };
            prop_assert!((share - p.prob(token)).abs() < 1e-5, "{share} against {}", p.prob(token));
        }
        let n = 20_000;
        for rule in [VerifyRule::Rejection, VerifyRule::Block] {
            let counts = first_token_counts(rule, &p, &q, n);
            for (token, count) in counts.iter().enumerate().take(5) {
                let want = f64::from(p.prob(TokenId(token as u32)));
                let error = (f64::from(*count) / n as f64 - want).abs();
                prop_assert!(error < 5.0 * (want * (1.0 - want) / n as f64).sqrt() + 1e-4);
            }
        }
    }

    #[test]
    fn verdicts_keep_their_shape(
        tokens in prop::collection::vec((0u32..5, 0usize..8), 0..8),
        p in weights(5), q in weights(5), seed: u64, greedy: bool, tree: bool,
    ) {
        let draws = SeededDraws::new(seed);
        let node = |(index, (token, row)): (usize, &(u32, usize))| {
            let draft = Draft::drawn(TokenId(*token), q.clone());
            if tree { draft.at_row(row % (index + 1)) } else { draft }
        };
        let drafts: Vec<_> = tokens.iter().enumerate().map(node).collect();
        let rows = vec![p; drafts.len() + 1];
        for rule in VerifyRule::ALL {
            let v = verifier(*rule).verify(&ctx(&draws, 0, greedy), &drafts, &rows);
            prop_assert_eq!(v.judgements.len(), drafts.len());
            let outcomes: Vec<_> = v.judgements.iter().map(|j| j.outcome).collect();
            prop_assert!(outcomes.iter().zip(&v.judgements).all(|(o, j)| *o != Outcome::NotReached || j.u.is_none()));
            // accepted drafts are a path, and rejected ones continue it
            let mut row = 0;
            for index in v.path() {
                prop_assert_eq!(drafts[index].row_at(index), row);
                row = index + 1;
            }
            let rejected = outcomes.iter().enumerate().filter(|(_, o)| **o == Outcome::Rejected);
            let on_path = |row: usize| row == 0 || outcomes[row - 1] == Outcome::Accepted;
            prop_assert!(rejected.into_iter().all(|(index, _)| on_path(drafts[index].row_at(index))));
            if !tree {
                prop_assert!(v.tested() == v.accepted() + usize::from(v.next_kind == NextKind::Recovered));
            }
        }
    }
}
