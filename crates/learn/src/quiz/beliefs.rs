//! What people believe of verification who judge rounds wrongly, as ways to judge: a wrong answer is compared with
//! what each of them would have answered.
//!
//! Invariant: a belief is named only where it leads to the very mark or choice that was wrong.

use draftscope_protocol::Outcome;

use super::belief::Belief;
use super::judge::{end_row, walk};
use super::shown::{Answer, Shown};

/// A confident draft: what "over 50 %" and "over 90 %" mean.
const LIKELY: u16 = 50;
const SURE: u16 = 90;

/// Number of places that "within the top few" means.
const FEW: usize = 3;

impl Belief {
    /// Whether somebody who believes it accepts a draft that the rule comes to.
    fn accepts(self, shown: &Shown, index: usize) -> Option<bool> {
        let draft = &shown.drafts[index];
        let row = shown.rows.get(draft.row)?;
        let by_p = || row.iter().max_by_key(|candidate| candidate.p).map(|best| best.token == draft.token);
        let q = draft.q.map_or(u16::MAX, |q| q.0); // a drafter without a distribution is certain
        match self {
            Self::Rank => {
                let better = row.iter().filter(|candidate| candidate.p > draft.p).count();
                Some(better < FEW && row.iter().any(|candidate| candidate.token == draft.token))
            }
            Self::Sure => Some(q >= SURE),
            Self::Threshold => Some(q >= LIKELY),
            Self::TargetThreshold => Some(draft.p.0 >= LIKELY),
            Self::All => Some(true),
            Self::BelowP => Some(draft.u? < draft.p).filter(|_| shown.compares_ratio()),
            Self::BestNotDraw => by_p().filter(|_| !shown.is_greedy),
            Self::AsExact => by_p().filter(|_| !shown.rule.is_lossless() && shown.is_greedy),
            Self::Best => by_p(),
            _ => None,
        }
    }

    /// What somebody who believes it answers, and otherwise knows everything: drafts after a rejection are not judged,
    /// and the target's best token of the right row is committed under its right name. None for a belief that is no
    /// way to judge drafts.
    pub(super) fn answer(self, shown: &Shown) -> Option<Answer> {
        let verdicts = walk(shown, |index| self.accepts(shown, index))?;
        let at = end_row(&verdicts);
        let kind = if shown.children(at).next().is_some() { "recovered" } else { "bonus" };
        let best = shown.rows.get(at)?.iter().max_by_key(|candidate| candidate.p)?;
        Some(Answer { committed: shown.choice(kind, &best.token).unwrap_or(usize::MAX), verdicts })
    }
}

/// Beliefs that are ways to judge drafts, the more special ones first.
const WAYS: &[Belief] = &[
    Belief::BelowP,
    Belief::BestNotDraw,
    Belief::AsExact,
    Belief::Rank,
    Belief::Threshold,
    Belief::Sure,
    Belief::TargetThreshold,
    Belief::All,
    Belief::Best,
];

/// The beliefs that a wrong answer fits, the most special one first; none for a right answer.
pub(super) fn beliefs_of(shown: &Shown, given: &Answer) -> Vec<Belief> {
    let right = &shown.right;
    let Some(wrong) = (0..right.verdicts.len()).find(|index| given.verdicts[*index] != right.verdicts[*index]) else {
        let is_wrong = given.committed != right.committed;
        return shown
            .choices
            .get(given.committed)
            .filter(|_| is_wrong)
            .and_then(|choice| choice.belief)
            .into_iter()
            .collect();
    };
    if right.verdicts[wrong] == Outcome::NotReached {
        return vec![if shown.is_tree { Belief::OtherBranch } else { Belief::AfterRejection }];
    }
    let fitting = |fits: &dyn Fn(&[Outcome]) -> bool| -> Vec<Belief> {
        let fits = |way: &Belief| way.answer(shown).is_some_and(|answer| fits(&answer.verdicts));
        WAYS.iter().copied().filter(fits).collect()
    };
    let whole = fitting(&|verdicts| verdicts == given.verdicts);
    // else the first wrong mark says it, where something was accepted: there are many reasons to reject
    let is_telling = whole.is_empty() && given.verdicts[wrong] == Outcome::Accepted;
    if is_telling { fitting(&|verdicts| verdicts[wrong] == Outcome::Accepted) } else { whole }
}

/// One belief for each wrong answer, of those that it fits: as few different ones as explain all, found by taking the one
/// that fits most answers first.
pub(super) fn explained(answers: &[Vec<Belief>]) -> Vec<Belief> {
    let mut open: Vec<&Vec<Belief>> = answers.iter().filter(|fitting| !fitting.is_empty()).collect();
    let mut found = Vec::new();
    while !open.is_empty() {
        let count = |belief: &Belief| open.iter().filter(|fitting| fitting.contains(belief)).count();
        // of equal ones the first in the list
        let Some(best) = WAYS.iter().chain(Belief::ALL).rev().max_by_key(|belief| count(belief)) else { break };
        let (explained, rest) = open.into_iter().partition::<Vec<_>, _>(|fitting| fitting.contains(best));
        found.extend(explained.iter().map(|_| *best));
        open = rest;
    }
    found
}

/// Ways to judge without understanding: what a quiz must not reward.
pub(super) const SIMPLE: &[Belief] =
    &[Belief::Threshold, Belief::Rank, Belief::All, Belief::TargetThreshold, Belief::Best];
