//! Alternatives to a chain's drafts: tokens beside the drafted ones that join the round where their rows are worth it, and
//! make a tree of it. They cost no pass of the drafter.
//!
//! The next alternative is the one that is most likely to be gained, from a model's distribution or a copy that a model's
//! draft was preferred to. Invariant, needed for losslessness: at a row they are drawn without replacement, and whether one
//! joins depends on the chain and on the alternatives before it, never on its own token.

use draftscope_protocol::distribution::Distribution;
use draftscope_protocol::policy::DraftProgress;
use draftscope_protocol::random::Purpose;
use draftscope_protocol::verify::{Draft, RoundCtx};
use draftscope_protocol::{DraftPick, DraftRefused, DraftStopped, Drafting, LatticeColumn, NodeWorth, TokenId};

use super::copier::Offer;

/// What a drafter was asked for.
pub(in crate::speculate) struct Asked {
    pub(in crate::speculate) drafts: Vec<Draft>,
    /// The token that ended the drafts because its probability was too low.
    pub(in crate::speculate) stopped: Option<DraftStopped>,
    /// The rule that ended them.
    pub(in crate::speculate) progress: Option<DraftProgress>,
    /// By row, what the draft there was preferred to.
    pub(in crate::speculate) passed_over: Vec<(usize, PassedOver)>,
    /// The candidates of positions that a selector chose at.
    pub(in crate::speculate) lattice: Vec<LatticeColumn>,
    /// Tokens that the grammar refused.
    pub(in crate::speculate) refused: Vec<DraftRefused>,
}

/// What could have been drafted instead.
pub(in crate::speculate) enum PassedOver {
    /// A token of this distribution, where a copy was drafted.
    Model(Distribution),
    /// A copy, where a model's token was drafted.
    Copy(Offer),
}

/// Limits of a round's alternatives.
#[derive(Clone, Copy)]
pub(in crate::speculate) struct Limits {
    /// Most drafts of the round, alternatives included.
    pub(in crate::speculate) most: usize,
    /// Tokens of the target.
    pub(in crate::speculate) vocab: u32,
}

/// A row that may get alternatives, and how likely it is reached.
struct Place {
    row: usize,
    reach: f64,
    from: From,
}

/// Where alternatives come from.
enum From {
    /// Tokens of `q` that are in `left`.
    Model {
        q: Distribution,
        left: Option<Distribution>,
    },
    Copy(Option<Offer>),
}

/// The alternatives that are worth their rows, after the drafts of a chain, each with what it promised.
pub(in crate::speculate) fn alternatives(
    asked: &Asked,
    (round, drafting): (&RoundCtx<'_>, &Drafting),
    limits: Limits,
) -> Vec<(Draft, NodeWorth)> {
    let Some(progress) = &asked.progress else { return Vec::new() };
    let mut places = places(asked, progress);
    let mut found = Vec::new();
    loop {
        let made = asked.drafts.len() + found.len();
        let chances = places.iter().map(|place| place.chance(progress, drafting.p_min));
        let best = chances.enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
        let Some((at, gain)) = best.filter(|(_, chance)| made < limits.most && progress.pays_row(made, *chance)) else {
            return found;
        };
        let is_certain = round.greedy || drafting.pick == DraftPick::Argmax;
        let (row, draft) = (places[at].row, places[at].next(is_certain, || round.draw(Purpose::Draft, made)));
        let Some(draft) = draft.filter(|draft| draft.token.0 < limits.vocab) else {
            return found;
        };
        places.iter_mut().filter(|place| place.row == row).for_each(|place| place.forget(draft.token));
        let drawn = draft.copied.is_none() && (round.greedy || !is_certain);
        let index = u8::try_from(made).unwrap_or(u8::MAX);
        let worth = NodeWorth { index, gain: gain as f32, cost: progress.row_price(made) as f32 };
        found.push((Draft { drawn, ..draft.at_row(row) }, worth));
    }
}

/// The rows of the chain whose drafts are not all that could have been drafted.
fn places(asked: &Asked, progress: &DraftProgress) -> Vec<Place> {
    let mut reach = 1.0;
    let mut places = Vec::new();
    for (row, draft) in asked.drafts.iter().enumerate() {
        let mut add = |from| places.push(Place { row, reach, from });
        if let Some(q) = &draft.q {
            add(From::Model { q: q.clone(), left: without(q, draft.token) });
        }
        for (_, passed_over) in asked.passed_over.iter().filter(|(at, _)| *at == row) {
            add(match passed_over {
                PassedOver::Model(q) => From::Model { q: q.clone(), left: without(q, draft.token) },
                // a draw may be the copy's token although the model's best is not
                PassedOver::Copy(copy) => From::Copy(Some(*copy).filter(|copy| copy.token != draft.token)),
            });
        }
        let own = draft.q.as_ref().map(|q| progress.chance(q.prob(q.argmax())));
        let copied = draft.copied.and_then(|copied| copied.chance).map(f64::from);
        reach *= if draft.forced { 1.0 } else { copied.or(own).unwrap_or(0.0) };
    }
    places
}

/// A distribution without a token; none if it has no other.
fn without(q: &Distribution, token: TokenId) -> Option<Distribution> {
    Some(q.without(token)).filter(|left| left.prob(token) == 0.0)
}

impl Place {
    /// The chance that its next alternative is gained; 0 if there is none, or its probability is below `p_min`.
    fn chance(&self, progress: &DraftProgress, p_min: f32) -> f64 {
        let (sure, chance) = match &self.from {
            From::Model { q, left } => {
                let share = left.as_ref().map_or(0.0, |left| q.prob(left.argmax()));
                (share, progress.alternative(share))
            }
            From::Copy(copy) => copy.map_or((0.0, 0.0), |copy| (copy.chance as f32, copy.chance)),
        };
        if sure < p_min { 0.0 } else { self.reach * chance }
    }

    /// Its next alternative: the most probable token if `is_certain`, else one that is drawn.
    fn next(&self, is_certain: bool, draw: impl FnOnce() -> f32) -> Option<Draft> {
        match &self.from {
            From::Model { q, left } => {
                let left = left.as_ref()?;
                let token = if is_certain { left.argmax() } else { left.pick(draw()) };
                Some(Draft::drawn(token, q.clone()))
            }
            From::Copy(copy) => copy.map(|copy| Draft::copy(copy.token, copy.copied)),
        }
    }

    /// Removes a token, which is an alternative at this row now.
    fn forget(&mut self, token: TokenId) {
        match &mut self.from {
            From::Model { left, .. } => *left = left.as_ref().and_then(|left| without(left, token)),
            From::Copy(copy) => *copy = copy.filter(|copy| copy.token != token),
        }
    }
}

#[cfg(test)]
mod tests {
    use draftscope_protocol::policy::Policy;
    use draftscope_protocol::random::SeededDraws;
    use draftscope_protocol::{Copied, Costs, Leniency, TokenId};

    use super::*;

    /// Costs in which a pass over one row takes 1,000 and each further row `row`.
    fn progress(row: f64) -> DraftProgress {
        let verify_us = (0..9).map(|rows| 1000.0 + row * f64::from(rows)).collect();
        let costs = Costs { verify_us, draft_us: 80.0, draft_pass_us: 0.0, settle_us: 10.0, overhead_us: 20.0 };
        DraftProgress::new(Policy::new(costs, 4).stop_rule(8))
    }

    fn found(drafts: Vec<Draft>, passed_over: Vec<(usize, PassedOver)>, row: f64, most: usize) -> Vec<(usize, u32)> {
        let asked = Asked {
            drafts,
            stopped: None,
            progress: Some(progress(row)),
            passed_over,
            lattice: Vec::new(),
            refused: Vec::new(),
        };
        let draws = SeededDraws::new(1);
        let leniency = Leniency::default();
        let round = RoundCtx { position: 9, draft_len: 8, greedy: true, fresh: None, leniency, draws: &draws };
        let limits = Limits { most, vocab: 8 };
        let found = alternatives(&asked, (&round, &Drafting::default()), limits);
        assert!(found.iter().all(|(draft, _)| draft.drawn != draft.copied.is_some()));
        for (place, (_, worth)) in found.iter().enumerate() {
            assert_eq!(usize::from(worth.index), asked.drafts.len() + place);
            assert!(worth.gain > worth.cost && (worth.cost > 0.0) == (row > 0.0), "{worth:?}");
        }
        found.iter().map(|(draft, _)| (draft.row.unwrap(), draft.token.0)).collect()
    }

    fn chain() -> Vec<Draft> {
        let sure = Distribution::from_weights(&[0.0, 0.70, 0.20, 0.06, 0.04]);
        let unsure = Distribution::from_weights(&[0.0, 0.10, 0.25, 0.40, 0.25]);
        vec![Draft::drawn(TokenId(1), sure), Draft::drawn(TokenId(3), unsure)]
    }

    #[test]
    fn the_likeliest_alternatives_come_first_and_stop_where_a_row_costs_more() {
        // 0.2 at the first row; 0.7 · 0.25 twice at the second
        assert_eq!(found(chain(), Vec::new(), 60.0, 15), [(0, 2), (1, 2), (1, 4)]);
        assert_eq!(found(chain(), Vec::new(), 60.0, 4), [(0, 2), (1, 2)], "most drafts of a round");
        assert_eq!(found(chain(), Vec::new(), 500.0, 15), []);
        let all = found(chain(), Vec::new(), 0.0, 15);
        assert_eq!(all.len(), 6, "as many as rows were timed, and no token twice: {all:?}");
        let asked = Asked {
            drafts: chain(),
            stopped: None,
            progress: None,
            passed_over: Vec::new(),
            lattice: Vec::new(),
            refused: Vec::new(),
        };
        let draws = SeededDraws::new(1);
        let leniency = Leniency::default();
        let round = RoundCtx { position: 9, draft_len: 8, greedy: true, fresh: None, leniency, draws: &draws };
        let limits = Limits { most: 15, vocab: 8 };
        assert!(alternatives(&asked, (&round, &Drafting::default()), limits).is_empty(), "k is fixed");
        let sure = Drafting { p_min: 0.22, ..Drafting::default() };
        let asked = Asked { progress: Some(progress(1.0)), ..asked };
        assert_eq!(alternatives(&asked, (&round, &sure), limits).len(), 2, "p-min holds for alternatives");
    }

    #[test]
    fn copies_and_drafts_that_were_passed_over_stand_beside_what_was_drafted() {
        let place = Copied { from: 3, len: 6, chance: Some(0.3) };
        let copy = |token: u32, chance| Offer { token: TokenId(token), copied: place, chance };
        let beside = vec![(0, PassedOver::Copy(copy(6, 0.3)))];
        assert_eq!(found(chain(), beside, 60.0, 15), [(0, 6), (0, 2), (1, 2), (1, 4)]);
        let same = vec![(0, PassedOver::Copy(copy(2, 0.3)))];
        assert_eq!(found(chain(), same, 60.0, 15), [(0, 2), (1, 2), (1, 4)], "one token is judged once");
        let drafted = vec![Draft::copy(TokenId(6), Copied { chance: Some(0.5), ..place })];
        let model = Distribution::from_weights(&[0.0, 0.45, 0.35, 0.1, 0.1]);
        assert_eq!(found(drafted, vec![(0, PassedOver::Model(model))], 100.0, 15), [(0, 1), (0, 2)]);
        let only = vec![Draft::drawn(TokenId(1), Distribution::certain(TokenId(1)))];
        assert_eq!(found(only, Vec::new(), 0.0, 15), [], "there is no other token");
    }
}
