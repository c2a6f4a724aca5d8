//! Lossless rules that judge one row at a time, in chains and trees: committed tokens follow `p`.

use std::borrow::Cow;

use super::draft::Draft;
use super::round_ctx::RoundCtx;
use super::walk::{Branch, Choice, Rule, Taken, Tried};
use crate::distribution::Distribution;
use crate::random::Purpose;

/// A draft must equal the token that the target picks at its position.
pub struct Exact;

impl Rule for Exact {
    const LOSSLESS: bool = true;

    fn choose(&self, ctx: &RoundCtx<'_>, branch: &Branch<'_>) -> Choice {
        let (token, u) = ctx.pick(branch.p, branch.depth);
        let equal = branch.drafts.iter().position(|(_, draft)| draft.token == token);
        let tried = vec![Tried { u, limit: None }; equal.map_or(branch.drafts.len(), |at| at + 1)];
        let taken =
            if equal.is_some() { Taken::Draft { instead: None } } else { Taken::Own { token, u, left_over: None } };
        Choice { tried, taken }
    }
}

/// Speculative sampling (Leviathan et al., 2023; Chen et al., 2023): accept with probability
/// min(1, p/q), else replace the draft by a draw from the normalised max(0, p − q).
///
/// If several drafts continue a row, they are tried one after the other. Each is compared with the residual of p, and
/// with q without the drafts before it. So the output follows p if the drafts are drawn without replacement (recursive
/// rejection sampling: Jeon et al., arXiv:2402.14160; Chen et al., "Sequoia", arXiv:2402.12374; with replacement: Miao
/// et al., "SpecInfer", arXiv:2305.09781). At temperature 0 the rule is [`Exact`].
pub struct Rejection;

impl Rule for Rejection {
    const LOSSLESS: bool = true;

    fn choose(&self, ctx: &RoundCtx<'_>, branch: &Branch<'_>) -> Choice {
        if ctx.greedy {
            return Exact.choose(ctx, branch);
        }
        let mut tried = Vec::with_capacity(branch.drafts.len());
        let (mut left, mut left_over) = (Cow::Borrowed(branch.p), None);
        let mut drawn: Vec<&Draft> = Vec::new();
        for (index, draft) in &branch.drafts {
            let q = draft_distribution(draft, &drawn);
            let u = ctx.draw(Purpose::Accept, *index);
            // the limit of the first draft is p/q, which the judgement contains
            let limit = (!drawn.is_empty()).then(|| ratio(left.prob(draft.token), q.prob(draft.token)));
            tried.push(Tried { u: Some(u), limit });
            if u * q.prob(draft.token) < left.prob(draft.token) {
                return Choice { tried, taken: Taken::Draft { instead: None } };
            }
            let (residual, mass) = left.residual(&q);
            (left, left_over) = (Cow::Owned(residual), Some(mass as f32));
            drawn.push(draft);
        }
        let u = ctx.draws.uniform(Purpose::Next, ctx.position + branch.depth);
        let left_over = left_over.filter(|_| drawn.len() == 1); // of further drafts it is a share of what was left
        Choice { tried, taken: Taken::Own { token: left.pick(u), u: Some(u), left_over } }
    }
}

/// min(1, p/q); if q is 0: 1 if p is above 0, else 0.
fn ratio(p: f32, q: f32) -> f32 {
    if q > 0.0 { (p / q).min(1.0) } else { f32::from(u8::from(p > 0.0)) }
}

/// The distribution that a draft was drawn from, without the drafts drawn before it at the same row.
fn draft_distribution<'a>(draft: &'a Draft, before: &[&Draft]) -> Cow<'a, Distribution> {
    match &draft.q {
        Some(q) if draft.drawn => before.iter().fold(Cow::Borrowed(q), |q, gone| Cow::Owned(q.without(gone.token))),
        _ => Cow::Owned(Distribution::certain(draft.token)),
    }
}
