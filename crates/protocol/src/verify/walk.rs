//! The walk that most rules share: from the anchor on, it asks the rule at each row which of the drafts that continue
//! it is accepted. A chain is a tree with one draft per row.

use super::draft::Draft;
use super::round_ctx::RoundCtx;
use super::verifier::Verifier;
use crate::distribution::Distribution;
use crate::{Departure, Judgement, NextKind, Outcome, TokenId, Verification};

/// One row of the target with the drafts that continue it, in the order in which they are tried.
pub(super) struct Branch<'a> {
    /// 0 = after the anchor.
    pub(super) depth: usize,
    pub(super) p: &'a Distribution,
    /// Index in the round, and the draft; never empty.
    pub(super) drafts: Vec<(usize, &'a Draft)>,
}

/// A rule's decision on a branch.
pub(super) struct Choice {
    /// The drafts that were tried, in order.
    pub(super) tried: Vec<Tried>,
    pub(super) taken: Taken,
}

/// How a draft was judged.
#[derive(Clone, Copy, Default)]
pub(super) struct Tried {
    /// The draw, 0 to 1; none if nothing was drawn.
    pub(super) u: Option<f32>,
    /// The value that the draw had to stay below, if that is not p ÷ q.
    pub(super) limit: Option<f32>,
}

/// How a branch continues.
pub(super) enum Taken {
    /// With the last tried draft; `instead` is the token that a lossless rule would have committed, if that is another
    /// one.
    Draft { instead: Option<TokenId> },
    /// With none of the drafts, but with this token of the target, picked with this draw.
    Own {
        token: TokenId,
        u: Option<f32>,
        /// Σ max(0, p − q), if it was drawn from the residual of one draft.
        left_over: Option<f32>,
    },
}

/// A rule that judges one row at a time.
pub(super) trait Rule {
    const LOSSLESS: bool;

    fn choose(&self, ctx: &RoundCtx<'_>, branch: &Branch<'_>) -> Choice;
}

impl<R: Rule> Verifier for R {
    fn verify(&self, ctx: &RoundCtx<'_>, drafts: &[Draft], target: &[Distribution]) -> Verification {
        let mut verdict = Verification {
            lossless: R::LOSSLESS,
            ..Verification::new(unjudged(drafts, target), TokenId(0), NextKind::Bonus, None)
        };
        let (mut row, mut depth) = (0, 0);
        while let Some(p) = target.get(row) {
            let continues = |(index, draft): &(usize, &Draft)| draft.row_at(*index) == row && *index >= row;
            let branch = Branch { depth, p, drafts: drafts.iter().enumerate().filter(continues).collect() };
            if branch.drafts.is_empty() {
                (verdict.next, verdict.next_u) = ctx.pick(p, depth);
                break;
            }
            match step(self, ctx, &branch, &mut verdict) {
                Some(accepted) => (row, depth) = (accepted + 1, depth + 1),
                None => break,
            }
        }
        verdict
    }
}

/// Judges one branch. Returns the index of the accepted draft, if any.
fn step(rule: &impl Rule, ctx: &RoundCtx<'_>, branch: &Branch<'_>, verdict: &mut Verification) -> Option<usize> {
    let Choice { tried, taken } = rule.choose(ctx, branch);
    let mut last = None;
    for ((index, _), Tried { u, limit }) in branch.drafts.iter().zip(tried) {
        (verdict.judgements[*index].u, verdict.judgements[*index].limit) = (u, limit);
        verdict.judgements[*index].outcome = Outcome::Rejected;
        last = Some(*index);
    }
    match taken {
        Taken::Draft { instead } => {
            let index = last?;
            verdict.judgements[index].outcome = Outcome::Accepted;
            let departure = instead.map(|instead| Departure { index: index as u8, instead });
            verdict.departures.extend(departure);
            last
        }
        Taken::Own { token, u, left_over } => {
            verdict.left_over = left_over;
            (verdict.next, verdict.next_u, verdict.next_kind) = (token, u, NextKind::Recovered);
            None
        }
    }
}

/// One judgement per draft, all of them not reached.
pub(super) fn unjudged(drafts: &[Draft], target: &[Distribution]) -> Vec<Judgement> {
    let judgement = |(index, draft): (usize, &Draft)| Judgement {
        p: Some(target.get(draft.row_at(index)).map_or(0.0, |p| p.prob(draft.token))),
        q: Some(draft.q_prob()),
        u: None,
        limit: None,
        outcome: Outcome::NotReached,
    };
    drafts.iter().enumerate().map(judgement).collect()
}
