//! One position of a round in numbers.
//!
//! Invariant: every number follows from the events; where a recording keeps only the best candidates, a number that
//! would need the others is a bound and its definition says so, or is `None`.

use draftscope_protocol::{Candidate, Outcome, Prediction, VerifyRule};

use super::round::Round;

/// Numbers of one column of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Facts {
    /// Target's probability of the draft; of the added token if there is no draft.
    pub p: Option<f32>,
    /// Drafter's probability of the draft.
    pub q: Option<f32>,
    /// Probability that a draft like this is accepted: min(1, p/q) by `rejection`, p by `exact` when
    /// drawn, 1 or 0 when the most probable token is taken.
    pub acceptance: Option<f32>,
    /// The draw that decided; `None` if nothing was drawn.
    pub u: Option<f32>,
    /// Rank of the target's own choice among the drafter's candidates, 0 = best; `None` if it is not among those
    /// recorded.
    pub rank: Option<usize>,
    /// Target's best minus its second best probability.
    pub margin: Option<f32>,
    /// Entropy of p in bits, with the tail counted as one token: a lower bound.
    pub target_entropy: Option<f32>,
    /// Entropy of q in bits, with the tail counted as one token: a lower bound.
    pub drafter_entropy: Option<f32>,
}

/// The numbers of column `index`.
#[must_use]
pub fn facts(round: &Round, index: usize) -> Facts {
    let row = round.prediction(index);
    let draft = round.drafts.get(index);
    let judgement = round.judgement(index);
    let added = round.next_piece().filter(|_| round.next_index() == Some(index));
    let of_added = added.as_ref().and_then(|piece| Some(row?.find(piece.id)?.1));
    let p = match draft {
        Some(cell) => judgement.and_then(|j| j.p).or_else(|| Some(row?.find(cell.token.id)?.1)),
        None => of_added,
    };
    // what the rule used: 1 for a draft that was picked, not drawn, whatever its probability
    let judged_q = judgement.and_then(|j| j.q);
    let q = draft.and_then(|cell| cell.q);
    // if a rule accepted a draft against the target, its choice is what it would have picked
    let choice = added.map(|piece| piece.id).or(round.departure(index)).or_else(|| match round.outcome(index) {
        Some(Outcome::Accepted) => draft.map(|cell| cell.token.id),
        _ => row.and_then(Prediction::best).map(|best| best.piece.id),
    });
    let is_later = (0..index).any(|before| round.is_tree() && round.row_of(before) == round.row_of(index));
    let listed = draft.map(|cell| &cell.top).filter(|top| !top.top.is_empty());
    Facts {
        p,
        q,
        acceptance: draft.and_then(|cell| {
            let is_best = cell.token.id == row?.best()?.piece.id;
            acceptance(round, row?, (is_best, is_later), (p?, judged_q.or(q)))
        }),
        u: judgement.and_then(|j| j.u),
        rank: choice.zip(listed).and_then(|(id, top)| top.find(id)).map(|(rank, _)| rank),
        margin: row.and_then(|row| Some(row.top.first()?.prob - row.top.get(1)?.prob)),
        target_entropy: row.map(entropy),
        drafter_entropy: listed.map(entropy),
    }
}

fn acceptance(
    round: &Round,
    row: &Prediction,
    (is_best, is_later): (bool, bool),
    (p, q): (f32, Option<f32>),
) -> Option<f32> {
    row.best()?;
    if round.sampling.is_greedy() {
        return matches!(round.rule, VerifyRule::Exact | VerifyRule::Rejection | VerifyRule::Block)
            .then_some(f32::from(u8::from(is_best)));
    }
    match round.judged_by() {
        _ if is_later => None, // against what the drafts before it left of p
        VerifyRule::Rejection => {
            let q = q.unwrap_or(1.0);
            (q > 0.0).then(|| (p / q).min(1.0))
        }
        VerifyRule::Exact => Some(p),
        _ => None, // drafts are judged together, or by a line that is no probability
    }
}

fn entropy(row: &Prediction) -> f32 {
    let probs = row.top.iter().map(|candidate| candidate.prob).chain([row.tail]);
    probs.filter(|p| *p > 0.0 && p.is_finite()).map(|p| -p * p.log2()).sum()
}

/// max(0, p − q), from which a rejected draft is redrawn, as far as it was recorded; not normalised, because it is not
/// known completely.
#[derive(Clone, Debug, PartialEq)]
pub struct Residual {
    /// By token, highest first; the tail is what is left of all tokens not listed.
    pub left: Prediction,
    /// Whether the tail is only an upper bound: p's share, because q's is not known token by token. So it is where the rule
    /// did not draw from this residual, or the recording does not say how much was left.
    pub is_bound: bool,
}

/// The residual for a rejected draft of column `index`, over the target's recorded candidates. A candidate missing from
/// the drafter's list counts with q = 0, although its q may be slightly larger. `None` if nothing is left, or if the
/// rule draws from no residual.
#[must_use]
pub fn residual(round: &Round, index: usize) -> Option<Residual> {
    if round.rule != VerifyRule::Rejection || round.is_tree() || round.sampling.is_greedy() {
        return None;
    }
    let (row, draft) = (round.prediction(index)?, round.drafts.get(index)?);
    // a draft that was picked, not drawn, has q = 1 for the rule, whatever its probability was
    let was_drawn = draft.q.is_some() && round.judgement(index).is_none_or(|judged| draft.q == judged.q);
    let q = |candidate: &Candidate| {
        if was_drawn {
            return draft.top.find(candidate.piece.id).map_or(0.0, |(_, q)| q);
        }
        f32::from(u8::from(candidate.piece.id == draft.token.id))
    };
    let left = row.top.iter().map(|c| Candidate { piece: c.piece.clone(), prob: (c.prob - q(c)).max(0.0) });
    let mut top: Vec<_> = left.filter(|c| c.prob > 0.0).collect();
    top.sort_by(|a, b| b.prob.total_cmp(&a.prob));
    let all =
        round.verdict.as_ref().filter(|_| round.next_index() == Some(index)).and_then(|verdict| verdict.left_over);
    let listed: f32 = top.iter().map(|candidate| candidate.prob).sum();
    let tail = all.map_or(row.tail, |all| (all - listed).clamp(0.0, row.tail.max(0.0)));
    let is_bound = was_drawn && all.is_none() && tail > 0.0;
    (!top.is_empty() || tail > 0.0).then_some(Residual { left: Prediction { top, tail }, is_bound })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{first_turn, piece};
    use super::*;
    use crate::fixture::fold;
    use draftscope_protocol::Lane;

    fn round(index: usize) -> Round {
        let session = fold(&first_turn().events);
        (*session.turns()[0].answer(Lane::Speculative).rounds[index]).clone()
    }

    #[test]
    fn greedy_positions_are_accepted_surely_or_never() {
        let rejected = facts(&round(0), 0);
        assert_eq!((rejected.acceptance, rejected.u, rejected.q), (Some(0.0), None, Some(0.41)));
        assert!((rejected.margin.unwrap() - (0.61 - 0.39 * 0.6)).abs() < 1e-6);
        assert_eq!(rejected.rank, None, "' sky' is not among the drafter's candidates");
        let accepted = facts(&round(1), 0);
        assert_eq!((accepted.acceptance, accepted.rank), (Some(1.0), Some(0)));
        let bonus = facts(&round(1), 3);
        assert_eq!((bonus.p, bonus.q, bonus.acceptance), (Some(0.64), None, None));
        assert_eq!(facts(&round(1), 9), Facts { p: None, ..Facts::default() });
    }

    #[test]
    fn a_ratio_is_the_acceptance_of_speculative_sampling() {
        let mut round = round(0);
        round.rule = VerifyRule::Rejection;
        round.sampling.temperature = 1.0;
        let facts = facts(&round, 0);
        let (p, q) = (facts.p.unwrap(), facts.q.unwrap());
        assert_eq!(facts.acceptance, Some(p / q));
    }

    #[test]
    fn the_residual_is_what_p_has_more_than_q() {
        assert_eq!(residual(&round(0), 0), None, "greedy draws nothing");
        let mut round = round(0);
        round.rule = VerifyRule::Rejection;
        round.sampling.temperature = 1.0;
        let Residual { left, is_bound } = residual(&round, 0).unwrap();
        let (best, row) = (left.best().unwrap(), &round.rows()[0]);
        assert_eq!(best.piece, piece(" sky"));
        let (_, p) = row.find(best.piece.id).unwrap();
        let q = round.drafts[0].top.find(best.piece.id).map_or(0.0, |(_, q)| q);
        assert_eq!(best.prob, p - q, "not normalised");
        assert!(left.find(piece(" color").id).is_none(), "q was more than p");
        assert_eq!((left.tail, is_bound), (row.tail, row.tail > 0.0), "at most: q of the rest is not known by token");
    }

    #[test]
    fn what_is_left_of_tokens_that_no_list_has_is_known_where_the_rule_drew() {
        let mut round = round(0);
        round.rule = VerifyRule::Rejection;
        round.sampling.temperature = 1.0;
        let listed: f32 = residual(&round, 0).unwrap().left.top.iter().map(|candidate| candidate.prob).sum();
        let row = round.rows()[0].tail;
        assert!(row > 0.0);
        for (all, tail) in [(listed + row / 2.0, row / 2.0), (listed / 2.0, 0.0), (2.0, row)] {
            round.verdict.as_mut().unwrap().left_over = Some(all);
            let Residual { left, is_bound } = residual(&round, 0).unwrap();
            assert!((left.tail - tail).abs() < 1e-6 && !is_bound, "{all}: {}, not more than p has there", left.tail);
        }
        let not_judged = residual(&round, 1).unwrap();
        assert_eq!(not_judged.left.tail, round.rows()[1].tail, "another row than the one that was drawn from");
    }

    #[test]
    fn entropy_of_a_coin_is_one_bit() {
        let side = |text: &str| Candidate { piece: piece(text), prob: 0.5 };
        assert_eq!(entropy(&Prediction { top: vec![side("a"), side("b")], tail: 0.0 }), 1.0);
    }
}
