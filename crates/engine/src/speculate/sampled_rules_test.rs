//! Every lossless rule commits tokens as the sampler's distribution says, whatever the settings.

#[path = "../../../../tests/common/chi_square.rs"]
#[allow(dead_code, unreachable_pub)] // other tests compare two samples
mod chi_square;

use chi_square::{ChiSquare, ONCE_IN_10_000};
use draftscope_protocol::distribution::Distribution;
use draftscope_protocol::policy::{DraftProgress, Policy};
use draftscope_protocol::random::{Purpose, SeededDraws};
use draftscope_protocol::verify::{Draft, OfRound, RoundCtx, verifier};
use draftscope_protocol::{Copied, Costs, Drafting, Leniency, Sampling, TokenId, VerifyRule};

use super::drafter::{Asked, Limits, Offer, PassedOver, alternatives};
use super::sampler::Sampler;

/// Draws one draft from q, verifies it against p, and counts the first committed token.
fn first_token_counts(rule: VerifyRule, p: &Distribution, q: &Distribution, n: usize) -> Vec<u32> {
    let draws = SeededDraws::new(11);
    let rows = [p.clone(), p.clone()];
    let mut counts = vec![0; 8];
    for position in 0..n {
        let fresh = (rule == VerifyRule::Block).then_some(OfRound { start: position, first: 0 });
        let leniency = Leniency::default();
        let ctx = RoundCtx { position, draft_len: 8, greedy: false, fresh, leniency, draws: &draws };
        let token = q.pick(ctx.draw(Purpose::Draft, 0));
        let verdict = verifier(rule).verify(&ctx, &[Draft::drawn(token, q.clone())], &rows);
        let first = if verdict.accepted() == 1 { token } else { verdict.next };
        counts[first.index()] += 1;
    }
    counts
}

#[test]
fn the_output_distribution_is_p_for_every_rule_temperature_and_truncation() {
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
        for rule in VerifyRule::ALL.iter().copied().filter(|rule| rule.is_lossless()) {
            let counts = first_token_counts(rule, &p, &q, n);
            let test = ChiSquare::against(
                p.entries().map(|(token, p)| (f64::from(counts[token.index()]), f64::from(p) * n as f64)),
            );
            assert!(!test.exceeds(ONCE_IN_10_000), "{rule} {sampling:?}: {test:?}");
            let outside = counts.iter().enumerate().filter(|(t, _)| p.prob(TokenId(*t as u32)) == 0.0);
            assert_eq!(outside.map(|(_, c)| c).sum::<u32>(), 0, "{rule} {sampling:?}");
        }
    }
}

/// A round with two drafts drawn from q and what stands beside them; what it commits.
fn round_with_alternatives(ctx: &RoundCtx<'_>, rule: VerifyRule, [p, q]: [&Distribution; 2]) -> Vec<TokenId> {
    let verify_us = (0..9).map(|rows| 1000.0 + 30.0 * f64::from(rows)).collect();
    let costs = Costs { verify_us, draft_us: 80.0, ..Costs::default() };
    let drawn = (0..2).map(|index| Draft::drawn(q.pick(ctx.draw(Purpose::Draft, index)), q.clone()));
    let copied = Copied { from: 0, len: 5, chance: Some(0.4) };
    let copy = |token| Offer { token: TokenId(token), copied, chance: 0.4 };
    let passed_over = vec![(0, PassedOver::Copy(copy(3))), (1, PassedOver::Copy(copy(7)))];
    let mut drafts: Vec<Draft> = drawn.collect();
    let progress = Some(DraftProgress::new(Policy::new(costs, 2).stop_rule(8)));
    let asked = Asked {
        drafts: drafts.clone(),
        stopped: None,
        progress,
        passed_over,
        lattice: Vec::new(),
        refused: Vec::new(),
    };
    let found = alternatives(&asked, (ctx, &Drafting::default()), Limits { most: 15, vocab: 8 });
    assert!(!found.is_empty());
    drafts.extend(found.into_iter().map(|(draft, _)| draft));
    let verdict = verifier(rule).verify(ctx, &drafts, &vec![p.clone(); drafts.len() + 1]);
    verdict.path().map(|index| drafts[index].token).chain([verdict.next]).collect()
}

#[test]
fn alternatives_leave_the_output_distribution_as_it_is() {
    let target = [1.2f32, 0.3, -0.5, 2.0, 0.0, 1.0, -2.0, 0.7];
    let drafter = [0.2f32, 1.5, 0.5, 0.9, -1.0, 2.0, 0.0, 0.1];
    let base = Sampling { temperature: 1.0, ..Sampling::default() };
    for sampling in [base, Sampling { temperature: 0.7, ..base }, Sampling { top_k: 4, ..base }] {
        let sampler = Sampler { sampling };
        let p = sampler.distribution(&target[..].into(), None, 0).unwrap();
        let q = sampler.distribution(&drafter[..].into(), None, 0).unwrap();
        for rule in [VerifyRule::Exact, VerifyRule::Rejection] {
            let draws = SeededDraws::new(5);
            let mut counts = [[0u32; 8]; 3];
            for round in 0..12_000 {
                let position = 16 * round;
                let fresh = Some(OfRound { start: position, first: 0 });
                let leniency = Leniency::default();
                let ctx = RoundCtx { position, draft_len: 2, greedy: false, fresh, leniency, draws: &draws };
                let committed = round_with_alternatives(&ctx, rule, [&p, &q]);
                committed.iter().zip(&mut counts).for_each(|(token, counts)| counts[token.index()] += 1);
            }
            for (place, counts) in counts.iter().enumerate() {
                // what follows accepted drafts is as free as the first token
                let n = f64::from(counts.iter().sum::<u32>());
                let expected = p.entries().map(|(token, p)| (f64::from(counts[token.index()]), f64::from(p) * n));
                let test = ChiSquare::against(expected);
                assert!(!test.exceeds(ONCE_IN_10_000), "{rule}, token {place}, {sampling:?}: {test:?}");
            }
        }
    }
}
