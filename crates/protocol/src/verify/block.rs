//! Block verification: judges the drafts of a chain together, which accepts more of them than one by one, and the
//! output still follows `p` (Sun et al., "Block Verification Accelerates Speculative Decoding", ICLR 2025,
//! arXiv:2403.10444, algorithm 2).
//!
//! Invariant: whether a prefix is accepted depends on the drafts and draws after it, so every round needs fresh draws:
//! a draw that was compared must not be used again.

use super::draft::{Draft, is_tree};
use super::lossless::{Exact, Rejection};
use super::round_ctx::RoundCtx;
use super::verifier::Verifier;
use super::walk::unjudged;
use crate::distribution::Distribution;
use crate::random::Purpose;
use crate::{NextKind, Outcome, Verification};

/// The rule. At temperature 0 it is [`Exact`], on a tree [`Rejection`].
pub struct Block;

impl Verifier for Block {
    fn verify(&self, ctx: &RoundCtx<'_>, drafts: &[Draft], target: &[Distribution]) -> Verification {
        if ctx.greedy {
            return Exact.verify(ctx, drafts, target);
        }
        if is_tree(drafts) || target.len() <= drafts.len() {
            return Rejection.verify(ctx, drafts, target);
        }
        together(ctx, drafts, target)
    }
}

fn together(ctx: &RoundCtx<'_>, drafts: &[Draft], target: &[Distribution]) -> Verification {
    let qs: Vec<Distribution> = drafts.iter().map(draft_distribution).collect();
    let mut verdict = Verification::new(unjudged(drafts, target), target[0].argmax(), NextKind::Recovered, None);
    let mut weights = vec![1.0]; // p_0, p_1, … of the paper
    let mut accepted = 0;
    for (i, draft) in drafts.iter().enumerate() {
        let ratio = f64::from(target[i].prob(draft.token)) / f64::from(qs[i].prob(draft.token));
        let weight = (weights[i] * ratio).min(1.0);
        weights.push(weight);
        let limit = match qs.get(i + 1) {
            Some(q) => share(weight, &target[i + 1], q),
            None => weight,
        };
        let u = ctx.draw(Purpose::Accept, i);
        (verdict.judgements[i].u, verdict.judgements[i].limit) = (Some(u), Some(limit as f32));
        if f64::from(u) < limit {
            accepted = i + 1;
        }
    }
    set_outcomes(&mut verdict, accepted);
    let p = &target[accepted];
    let u = ctx.draws.uniform(Purpose::Next, ctx.position + accepted);
    verdict.next_u = Some(u);
    verdict.next = match qs.get(accepted) {
        Some(q) => p.scaled_residual(weights[accepted], q).pick(u),
        None => p.pick(u),
    };
    verdict
}

/// The distribution that the draft was drawn from.
fn draft_distribution(draft: &Draft) -> Distribution {
    match &draft.q {
        Some(q) if draft.drawn => q.clone(),
        _ => Distribution::certain(draft.token),
    }
}

/// h of the paper: S ÷ (S + 1 − w) with S = Σ max(w·p − q, 0). If both S and 1 − w are 0, p equals q, and it is 1.
fn share(weight: f64, p: &Distribution, q: &Distribution) -> f64 {
    let over = p.excess(weight, q);
    let all = over + 1.0 - weight;
    if all > 0.0 { over / all } else { 1.0 }
}

/// Sets the outcomes for the longest accepted prefix, and removes the draws after the rejected draft.
fn set_outcomes(verdict: &mut Verification, accepted: usize) {
    for (i, judgement) in verdict.judgements.iter_mut().enumerate() {
        judgement.outcome = match i {
            _ if i < accepted => Outcome::Accepted,
            _ if i == accepted => Outcome::Rejected,
            _ => Outcome::NotReached,
        };
        if i > accepted {
            (judgement.u, judgement.limit) = (None, None);
        }
    }
    if accepted == verdict.judgements.len() {
        verdict.next_kind = NextKind::Bonus;
    }
}
