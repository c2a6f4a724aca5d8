//! One position of the text, decided many times under each rule: what comes out, and how often the draft is accepted.
//!
//! Invariant: the rules are those of the engine. Draws are seeded, so the same p and q give the same counts.

use draftscope_protocol::distribution::Distribution;
use draftscope_protocol::random::{Draws, Purpose, SeededDraws};
use draftscope_protocol::verify::{Draft, OfRound, RoundCtx, verifier};
use draftscope_protocol::{Leniency, TokenId, VerifyRule};

/// How often the position is decided under each rule.
pub const DRAWS: usize = 1_000;

/// The rules in the order of the drawing; all of them at their default limits.
const RULES: [VerifyRule; 6] = [
    VerifyRule::Exact,
    VerifyRule::Rejection,
    VerifyRule::Block,
    VerifyRule::Typical,
    VerifyRule::TopK,
    VerifyRule::Confidence,
];

/// What came of one rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Tally {
    /// None is plain decoding.
    pub rule: Option<VerifyRule>,
    /// Of all draws, the share that committed each candidate.
    pub shares: Vec<f64>,
    /// The share that accepted the draft; none for plain decoding.
    pub accepted: Option<f64>,
}

impl Tally {
    /// Whether every share is as near to p as chance leaves it: within three standard errors.
    #[must_use]
    pub fn agrees(&self, p: &[f64]) -> bool {
        let error = |p: f64| 3.0 * (p * (1.0 - p) / DRAWS as f64).sqrt();
        self.shares.iter().zip(p).all(|(share, p)| (share - p).abs() <= error(*p))
    }
}

/// Plain decoding, then each rule, at a position with these probabilities of target and drafter.
#[must_use]
pub fn tallies(p: &[f64], q: &[f64]) -> Vec<Tally> {
    let of = |list: &[f64]| Distribution::from_weights(&list.iter().map(|share| *share as f32).collect::<Vec<_>>());
    let (p, q) = (of(p), of(q));
    std::iter::once(None).chain(RULES.map(Some)).map(|rule| tally(rule, &p, &q)).collect()
}

fn tally(rule: Option<VerifyRule>, p: &Distribution, q: &Distribution) -> Tally {
    let draws = SeededDraws::new(0);
    let (mut counts, mut accepted) = (vec![0_usize; p.entries().count().max(q.entries().count())], 0);
    let mut count = |token: TokenId| {
        if let Some(count) = counts.get_mut(token.index()) {
            *count += 1;
        }
    };
    for position in 0..DRAWS {
        let Some(rule) = rule else {
            count(p.pick(draws.uniform(Purpose::Next, position)));
            continue;
        };
        let draft = q.pick(draws.uniform(Purpose::Draft, position));
        let ctx = RoundCtx {
            position,
            draft_len: 1,
            greedy: false,
            fresh: Some(OfRound { start: position, first: 0 }),
            leniency: Leniency::default(),
            draws: &draws,
        };
        let verdict = verifier(rule).verify(&ctx, &[Draft::drawn(draft, q.clone())], &[p.clone(), p.clone()]);
        let is_accepted = verdict.accepted() > 0;
        accepted += usize::from(is_accepted);
        count(if is_accepted { draft } else { verdict.next });
    }
    let share = |count: usize| count as f64 / DRAWS as f64;
    Tally { rule, shares: counts.into_iter().map(share).collect(), accepted: rule.map(|_| share(accepted)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: [f64; 4] = [0.45, 0.3, 0.15, 0.1];
    const Q: [f64; 4] = [0.62, 0.18, 0.1, 0.1];

    #[test]
    fn lossless_rules_agree_with_p_and_the_others_do_not() {
        for tally in tallies(&P, &Q) {
            let is_lossless = tally.rule.is_none_or(VerifyRule::is_lossless);
            assert_eq!(tally.agrees(&P), is_lossless, "{tally:?}");
            assert!((tally.shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{tally:?}");
        }
    }

    #[test]
    fn drafts_are_accepted_as_often_as_the_sums_say() {
        let near = |rule, expected: f64| {
            let found = tallies(&P, &Q).into_iter().find(|tally| tally.rule == Some(rule)).unwrap().accepted.unwrap();
            let error = 3.0 * (expected * (1.0 - expected) / DRAWS as f64).sqrt();
            assert!((found - expected).abs() <= error, "{rule}: {found}, not {expected}");
        };
        let sum = |of: fn((&f64, &f64)) -> f64| P.iter().zip(&Q).map(of).sum::<f64>();
        near(VerifyRule::Exact, sum(|(p, q)| p * q));
        near(VerifyRule::Rejection, sum(|(p, q)| p.min(*q)));
        near(VerifyRule::Block, sum(|(p, q)| p.min(*q)));
        // the best three, and the fourth where it is the target's draw all the same
        near(VerifyRule::TopK, 0.9 + 0.1 * 0.1);
    }
}
