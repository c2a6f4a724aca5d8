//! Rules that are NOT lossless: they accept drafts that the target would not have picked, and record these.
//!
//! Each of them accepts every draft that [`Exact`](super::Exact) accepts with the same draws; every other accepted
//! draft is a departure. After a rejection the target's own pick is committed.

use super::draft::Draft;
use super::round_ctx::RoundCtx;
use super::walk::{Branch, Choice, Rule, Taken, Tried};
use crate::Leniency;
use crate::distribution::Distribution;

/// The condition under which a draft is accepted that does not equal the target's pick.
trait Lenient {
    fn passes(&self, line: &Leniency, p: &Distribution, draft: &Draft) -> bool;
}

impl<L: Lenient> Rule for L {
    const LOSSLESS: bool = false;

    fn choose(&self, ctx: &RoundCtx<'_>, branch: &Branch<'_>) -> Choice {
        let (own, u) = ctx.pick(branch.p, branch.depth);
        let equal = branch.drafts.iter().position(|(_, draft)| draft.token == own);
        let passes = |(_, draft): &(usize, &Draft)| self.passes(&ctx.leniency, branch.p, draft);
        let at = equal.or_else(|| branch.drafts.iter().position(passes));
        let taken = match at {
            Some(_) => Taken::Draft { instead: equal.is_none().then_some(own) },
            None => Taken::Own { token: own, u, left_over: None },
        };
        Choice { tried: vec![Tried { u, limit: None }; at.map_or(branch.drafts.len(), |at| at + 1)], taken }
    }
}

/// Typical acceptance: p > min(ε, δ·e^(−H(p))) (Cai et al., "Medusa", arXiv:2401.10774, section 2.3.1).
pub struct Typical;

impl Lenient for Typical {
    fn passes(&self, line: &Leniency, p: &Distribution, draft: &Draft) -> bool {
        let bar = f64::from(line.epsilon).min(f64::from(line.delta) * (-p.entropy()).exp());
        f64::from(p.prob(draft.token)) > bar
    }
}

/// Accepts a draft among the target's `top_k` most probable tokens.
pub struct TopK;

impl Lenient for TopK {
    fn passes(&self, line: &Leniency, p: &Distribution, draft: &Draft) -> bool {
        let own = p.prob(draft.token);
        let better = p.entries().filter(|(_, p)| *p > own).count();
        own > 0.0 && better < usize::from(line.top_k)
    }
}

/// Accepts a draft if p is at least the threshold.
pub struct Threshold;

impl Lenient for Threshold {
    fn passes(&self, line: &Leniency, p: &Distribution, draft: &Draft) -> bool {
        p.prob(draft.token) >= line.threshold
    }
}

/// Accepts a draft if q is at least the threshold, whatever p is. Drafts without a distribution never pass.
pub struct Confidence;

impl Lenient for Confidence {
    fn passes(&self, line: &Leniency, _: &Distribution, draft: &Draft) -> bool {
        draft.confidence().is_some_and(|q| q >= line.confidence)
    }
}
