//! The rules under which committed tokens follow `p`, one row at a time: chains and trees alike.

use std::borrow::Cow;

use super::walk::{Branch, Choice, Rule, Taken, Tried};
use super::{Draft, RoundCtx};
use crate::speculate::distribution::Distribution;
use crate::speculate::random::Purpose;

/// A draft must equal the token that the target picks at its position.
pub struct Exact;

impl Rule for Exact {
    const LOSSLESS: bool = true;

    fn choose(&self, ctx: &RoundCtx<'_>, branch: &Branch<'_>) -> Choice {
        let (token, u) = ctx.pick(branch.p, branch.depth);
        let equal = branch.drafts.iter().position(|(_, draft)| draft.token == token);
        let tried = vec![Tried { u, limit: None }; equal.map_or(branch.drafts.len(), |at| at + 1)];
        let taken = if equal.is_some() { Taken::Draft { instead: None } } else { Taken::Own { token, u } };
        Choice { tried, taken }
    }
}

/// Speculative sampling (Leviathan et al., 2023; Chen et al., 2023): accept with probability
/// min(1, p/q), else replace the draft by a draw from the normalised max(0, p − q).
///
/// Where several drafts continue a row, they are tried one after the other, each against what the ones
/// before left of p and q: drafts drawn without replacement keep the law of p (recursive rejection
/// sampling: Jeon et al., arXiv:2402.14160; Chen et al., "Sequoia", arXiv:2402.12374; with
/// replacement: Miao et al., "SpecInfer", arXiv:2305.09781). At temperature 0 the rule is [`Exact`].
pub struct Rejection;

impl Rule for Rejection {
    const LOSSLESS: bool = true;

    fn choose(&self, ctx: &RoundCtx<'_>, branch: &Branch<'_>) -> Choice {
        if ctx.greedy {
            return Exact.choose(ctx, branch);
        }
        let mut tried = Vec::with_capacity(branch.drafts.len());
        let mut left = Cow::Borrowed(branch.p);
        let mut drawn: Vec<&Draft> = Vec::new();
        for (index, draft) in &branch.drafts {
            let law = law(draft, &drawn);
            let u = ctx.draw(Purpose::Accept, *index);
            // of the first, p and q say it
            let limit = (!drawn.is_empty()).then(|| over(left.prob(draft.token), law.prob(draft.token)));
            tried.push(Tried { u: Some(u), limit });
            if u * law.prob(draft.token) < left.prob(draft.token) {
                return Choice { tried, taken: Taken::Draft { instead: None } };
            }
            left = Cow::Owned(left.residual(&law));
            drawn.push(draft);
        }
        let u = ctx.draws.uniform(Purpose::Next, ctx.position + branch.depth);
        Choice { tried, taken: Taken::Own { token: left.pick(u), u: Some(u) } }
    }
}

/// min(1, p/q) of what is left of both; without any q whatever p has left is enough.
fn over(p: f32, q: f32) -> f32 {
    if q > 0.0 { (p / q).min(1.0) } else { f32::from(u8::from(p > 0.0)) }
}

/// What a draft was drawn from, given the ones drawn before it at the same row.
fn law<'a>(draft: &'a Draft, before: &[&Draft]) -> Cow<'a, Distribution> {
    match &draft.q {
        Some(q) if draft.drawn => before.iter().fold(Cow::Borrowed(q), |q, gone| Cow::Owned(q.without(gone.token))),
        _ => Cow::Owned(Distribution::certain(draft.token)),
    }
}
