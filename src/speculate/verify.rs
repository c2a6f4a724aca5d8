//! The rules by which drafts are accepted. Pure: distributions and draws in, a verdict out; no
//! tensors, no model, no clock, no stop rules.
//!
//! Invariant: the judgements are a run of accepted drafts, then at most one rejected, then only
//! ones that were not reached. Both rules here are lossless: committed tokens follow `p`.

use super::distribution::Distribution;
use super::draws::{Draws, Purpose};
use crate::protocol::{Judgement, NextKind, Outcome, TokenId, Verification, VerifyRule};

/// A proposed token.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// The proposal.
    pub token: TokenId,
    /// Distribution the token was drawn from; `None` = certain (n-gram, scripted).
    pub q: Option<Distribution>,
}

impl Draft {
    /// Probability that the drafter gave its proposal, 0 to 1.
    #[must_use]
    pub fn q_prob(&self) -> f32 {
        self.q.as_ref().map_or(1.0, |q| q.prob(self.token))
    }
}

/// What a round hands to drafter and verifier besides tokens.
#[derive(Clone, Copy)]
pub struct RoundCtx<'a> {
    /// 1, 2, 3 …
    pub round: u32,
    /// Position of the first draft in the context; it addresses the draws.
    pub position: usize,
    /// Most tokens the drafter may propose.
    pub draft_len: usize,
    /// Whether the largest probability is taken instead of a draw (temperature 0).
    pub greedy: bool,
    /// The run's draws.
    pub draws: &'a dyn Draws,
}

impl RoundCtx<'_> {
    /// The target's own choice at draft index `i`, and the draw it took.
    fn pick(&self, p: &Distribution, i: usize) -> (TokenId, Option<f32>) {
        if self.greedy {
            return (p.argmax(), None);
        }
        let u = self.draws.uniform(Purpose::Next, self.position + i);
        (p.pick(u), Some(u))
    }
}

/// Pure: no tensors, no model, no clock. `target` has one row per draft plus one.
pub trait Verifier {
    /// Judges the drafts of one round.
    fn verify(&self, ctx: &RoundCtx<'_>, drafts: &[Draft], target: &[Distribution]) -> Verification;
}

/// The verifier of a rule.
#[must_use]
pub fn verifier(rule: VerifyRule) -> &'static dyn Verifier {
    match rule {
        VerifyRule::Exact => &Exact,
        VerifyRule::Rejection => &Rejection,
    }
}

/// A draft must equal the token that the target picks at its position.
pub struct Exact;

impl Verifier for Exact {
    fn verify(&self, ctx: &RoundCtx<'_>, drafts: &[Draft], target: &[Distribution]) -> Verification {
        judge(drafts, target, |i, draft, p| {
            let (own, u) = ctx.pick(p, i);
            if own == draft.token { Ruling::Accept { u } } else { Ruling::Reject { u, next: own, next_u: u } }
        })
        .unwrap_or_else(|judgements| bonus(ctx, judgements, target))
    }
}

/// Speculative sampling (Leviathan et al., 2023; Chen et al., 2023): accept with probability
/// min(1, p/q), else replace the draft by a draw from the normalised max(0, p − q). At temperature 0
/// both distributions have all mass on one token and the rule is [`Exact`].
pub struct Rejection;

impl Verifier for Rejection {
    fn verify(&self, ctx: &RoundCtx<'_>, drafts: &[Draft], target: &[Distribution]) -> Verification {
        if ctx.greedy {
            return Exact.verify(ctx, drafts, target);
        }
        judge(drafts, target, |i, draft, p| {
            let u = ctx.draws.uniform(Purpose::Accept, ctx.position + i);
            if u * draft.q_prob() < p.prob(draft.token) {
                return Ruling::Accept { u: Some(u) };
            }
            let residual = match &draft.q {
                Some(q) => p.residual(q),
                None => p.residual(&Distribution::certain(draft.token)),
            };
            let next_u = ctx.draws.uniform(Purpose::Next, ctx.position + i);
            Ruling::Reject { u: Some(u), next: residual.pick(next_u), next_u: Some(next_u) }
        })
        .unwrap_or_else(|judgements| bonus(ctx, judgements, target))
    }
}

/// What a rule says of one draft.
enum Ruling {
    Accept { u: Option<f32> },
    Reject { u: Option<f32>, next: TokenId, next_u: Option<f32> },
}

/// Asks the rule draft by draft up to the first rejection; `Err` carries the judgements when there
/// was none.
fn judge(
    drafts: &[Draft],
    target: &[Distribution],
    mut rule: impl FnMut(usize, &Draft, &Distribution) -> Ruling,
) -> Result<Verification, Vec<Judgement>> {
    let mut judgements = Vec::with_capacity(drafts.len());
    let mut recovered = None;
    for (i, (draft, p)) in drafts.iter().zip(target).enumerate() {
        let (u, outcome) = if recovered.is_some() {
            (None, Outcome::NotReached)
        } else {
            match rule(i, draft, p) {
                Ruling::Accept { u } => (u, Outcome::Accepted),
                Ruling::Reject { u, next, next_u } => {
                    recovered = Some((next, next_u));
                    (u, Outcome::Rejected)
                }
            }
        };
        judgements.push(Judgement { p: p.prob(draft.token), q: draft.q_prob(), u, outcome });
    }
    match recovered {
        Some((next, next_u)) => Ok(Verification { judgements, next, next_kind: NextKind::Recovered, next_u }),
        None => Err(judgements),
    }
}

/// All drafts were accepted: one more token from the last row.
fn bonus(ctx: &RoundCtx<'_>, judgements: Vec<Judgement>, target: &[Distribution]) -> Verification {
    let i = judgements.len();
    let (next, next_u) = target.get(i).map_or((TokenId(0), None), |p| ctx.pick(p, i));
    Verification { judgements, next, next_kind: NextKind::Bonus, next_u }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::draws::SeededDraws;
    use super::*;

    fn ctx(draws: &dyn Draws, position: usize, greedy: bool) -> RoundCtx<'_> {
        RoundCtx { round: 1, position, draft_len: 8, greedy, draws }
    }

    fn draft(token: u32) -> Draft {
        Draft { token: TokenId(token), q: None }
    }

    #[test]
    fn greedy_accepts_the_matching_prefix() {
        let draws = SeededDraws::new(0);
        let rows: Vec<_> = [1u32, 2, 3, 0].map(|t| Distribution::certain(TokenId(t))).into();
        for rule in VerifyRule::ALL {
            let verify = |drafts: &[Draft]| verifier(*rule).verify(&ctx(&draws, 0, true), drafts, &rows);
            let all = verify(&[draft(1), draft(2), draft(3)]);
            assert_eq!((all.accepted(), all.next, all.next_kind), (3, TokenId(0), NextKind::Bonus));
            let one = verify(&[draft(1), draft(9), draft(3)]);
            assert_eq!((one.accepted(), one.tested(), one.next), (1, 2, TokenId(2)));
            assert_eq!(one.next_kind, NextKind::Recovered);
            assert_eq!(one.judgements[2].outcome, Outcome::NotReached);
            let none = verify(&[]);
            assert_eq!((none.accepted(), none.next, none.next_kind), (0, TokenId(1), NextKind::Bonus));
        }
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

    /// 99.99 % quantile of chi-square, by the cube of Wilson and Hilferty (1931).
    fn chi_limit(df: f64) -> f64 {
        df * (1.0 - 2.0 / (9.0 * df) + 3.719 * (2.0 / (9.0 * df)).sqrt()).powi(3)
    }

    fn chi_square(counts: &[u32], p: &Distribution, n: usize) -> (f64, f64) {
        let cells = counts.iter().enumerate().filter(|(t, _)| p.prob(TokenId(*t as u32)) > 0.0);
        let (mut chi, mut df) = (0.0, -1.0);
        for (token, count) in cells {
            let expected = f64::from(p.prob(TokenId(token as u32))) * n as f64;
            chi += (f64::from(*count) - expected).powi(2) / expected;
            df += 1.0;
        }
        (chi, df)
    }

    /// Draws one draft from q, verifies it against p, and counts the first committed token.
    fn law_of_first_token(rule: VerifyRule, p: &Distribution, q: &Distribution, n: usize) -> Vec<u32> {
        let draws = SeededDraws::new(11);
        let rows = [p.clone(), p.clone()];
        let mut counts = vec![0; 8];
        for position in 0..n {
            let token = q.pick(draws.uniform(Purpose::Draft, position));
            let verdict =
                verifier(rule).verify(&ctx(&draws, position, false), &[Draft { token, q: Some(q.clone()) }], &rows);
            let first = if verdict.accepted() == 1 { token } else { verdict.next };
            counts[first.index()] += 1;
        }
        counts
    }

    #[test]
    fn the_output_law_is_p_for_every_rule_temperature_and_truncation() {
        use crate::protocol::Sampling;
        use crate::speculate::sampler::Sampler;
        let target = [1.2f32, 0.3, -0.5, 2.0, 0.0, 1.0, -2.0, 0.7];
        let drafter = [0.2f32, 1.5, 0.5, 0.9, -1.0, 2.0, 0.0, 0.1];
        let n = 24_000;
        let base = Sampling { temperature: 1.0, ..Sampling::default() };
        let settings = [
            base,
            Sampling { temperature: 0.5, ..base },
            Sampling { temperature: 1.6, ..base },
            Sampling { top_k: 3, ..base },
            Sampling { top_p: 0.8, ..base },
            Sampling { min_p: 0.15, temperature: 0.8, ..base },
        ];
        for sampling in settings {
            let sampler = Sampler { sampling };
            let p = sampler.distribution(&target[..].into(), None, 0).unwrap();
            let q = sampler.distribution(&drafter[..].into(), None, 0).unwrap();
            for rule in VerifyRule::ALL {
                let counts = law_of_first_token(*rule, &p, &q, n);
                let (chi, df) = chi_square(&counts, &p, n);
                assert!(chi < chi_limit(df), "{rule} {sampling:?}: chi-square {chi} with {df} degrees of freedom");
                let outside = counts.iter().enumerate().filter(|(t, _)| p.prob(TokenId(*t as u32)) == 0.0);
                assert_eq!(outside.map(|(_, c)| c).sum::<u32>(), 0, "{rule} {sampling:?}");
            }
        }
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
        let (chi, df) = chi_square(&counts, &p, 24_000);
        assert!(chi > chi_limit(df), "chi-square {chi}");
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
                let law = kept + if rejected > 0.0 { rejected * p.residual(&q).prob(token) } else { 0.0 };
                prop_assert!((law - p.prob(token)).abs() < 1e-5, "{law} against {}", p.prob(token));
            }
            let n = 20_000;
            let counts = law_of_first_token(VerifyRule::Rejection, &p, &q, n);
            for (token, count) in counts.iter().enumerate().take(5) {
                let want = f64::from(p.prob(TokenId(token as u32)));
                let error = (f64::from(*count) / n as f64 - want).abs();
                prop_assert!(error < 5.0 * (want * (1.0 - want) / n as f64).sqrt() + 1e-4);
            }
        }

        #[test]
        fn verdicts_keep_their_shape(
            tokens in prop::collection::vec(0u32..5, 0..8),
            p in weights(5), q in weights(5), seed: u64, greedy: bool,
        ) {
            let draws = SeededDraws::new(seed);
            let drafts: Vec<_> = tokens.iter().map(|t| Draft { token: TokenId(*t), q: Some(q.clone()) }).collect();
            let rows = vec![p; drafts.len() + 1];
            for rule in VerifyRule::ALL {
                let v = verifier(*rule).verify(&ctx(&draws, 0, greedy), &drafts, &rows);
                prop_assert_eq!(v.judgements.len(), drafts.len());
                let (a, t) = (v.accepted(), v.tested());
                prop_assert!(t == a + usize::from(v.next_kind == NextKind::Recovered));
                prop_assert!(v.judgements[t..].iter().all(|j| j.outcome == Outcome::NotReached && j.u.is_none()));
            }
        }
    }
}
