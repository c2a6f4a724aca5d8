//! What people believe of verification who judge rounds wrongly, as ways to judge: a wrong answer is compared with
//! what each of them would have answered.
//!
//! Invariant: a belief is named only where it leads to the very mark or choice that was wrong.

use draftscope_protocol::Outcome;

use super::judge::{end_row, walk};
use super::shown::{Answer, Shown};

/// A confident draft: what "over 50 %" and "over 90 %" mean.
const LIKELY: u16 = 50;
const SURE: u16 = 90;

/// Number of places that "within the top few" means.
const FEW: usize = 3;

draftscope_protocol::named_enum! {
    /// An idea of how drafts are judged that the engine does not follow.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub(crate) enum Belief {
        /// A draft after a rejected one is still judged.
        AfterRejection = "after-rejection",
        /// A branch of a tree to which the text does not lead is judged.
        OtherBranch = "other-branch",
        /// A draft among the target's best few is accepted.
        Rank = "rank",
        /// A draft of which the drafter is sure is accepted.
        Sure = "sure",
        /// A draft with q of at least one half is accepted.
        Threshold = "threshold",
        /// A draft with p of at least one half is accepted, and no other.
        TargetThreshold = "target-threshold",
        /// Every draft is accepted.
        All = "all",
        /// A draft is accepted if u is below p, whatever q is.
        BelowP = "below-p",
        /// Only the target's most probable token is accepted, also where tokens are drawn.
        BestNotDraw = "best-not-draw",
        /// A rule that is not lossless judges as `exact` does.
        AsExact = "as-exact",
        /// The target's most probable token is accepted, and no other, whatever the rule.
        Best = "best",
        /// The rejected draft is committed.
        KeptDraft = "kept-draft",
        /// A bonus token follows a rejection.
        BonusAfterRejection = "bonus-after-rejection",
        /// The target adds nothing.
        NothingAdded = "nothing-added",
        /// The token of another row is committed.
        WrongPlace = "wrong-place",
        /// The target's second token is committed.
        SecondBest = "second-best",
        /// Bonus and recovered are taken for each other.
        WrongName = "wrong-name",
    }
}

impl Belief {
    /// The belief of a name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|belief| belief.name() == name)
    }

    /// What somebody did who believes it, in one sentence without a stop.
    pub(crate) const fn sentence(self) -> &'static str {
        match self {
            Self::AfterRejection => "you judged drafts after a rejection; they are discarded unjudged",
            Self::OtherBranch => "you judged a branch to which the text does not lead",
            Self::Rank => "you accepted by rank: being among the target's best three is not enough",
            Self::Sure => "you judged by the drafter's confidence; only the rule confidence looks at q alone",
            Self::Threshold => "you judged by threshold: q alone decides nothing",
            Self::TargetThreshold => "you judged by threshold: p needs no minimum, the most probable token wins",
            Self::All => "you accepted every draft",
            Self::BelowP => "you compared u with p; the rule compares it with p/q",
            Self::BestNotDraw => "you judged by the most probable token; above temperature 0 a draw decides",
            Self::AsExact => "you judged by the exact rule; this rule is not lossless and accepts more",
            Self::Best => "you judged by the target's most probable token, whatever the rule",
            Self::KeptDraft => "you kept the rejected draft; the target's own token replaces it",
            Self::BonusAfterRejection => "you added a bonus after a rejection; it follows only when all are accepted",
            Self::NothingAdded => "you added nothing; every round ends with one token of the target",
            Self::WrongPlace => "you took the token of another row; it comes from the row in which the drafts end",
            Self::SecondBest => "you took the target's second token; its choice is the first",
            Self::WrongName => "bonus: all drafts accepted; recovered: in place of a rejected draft",
        }
    }

    /// The lesson that treats it, and its step from 1.
    pub(crate) const fn lesson(self) -> (&'static str, usize) {
        match self {
            Self::AfterRejection | Self::OtherBranch => ("round", 8),
            Self::All | Self::SecondBest => ("round", 4),
            Self::BonusAfterRejection | Self::WrongName => ("round", 5),
            Self::NothingAdded => ("round", 6),
            Self::KeptDraft => ("round", 10),
            Self::TargetThreshold => ("lossless", 1),
            Self::Rank => ("lossless", 5),
            Self::AsExact => ("lossless", 6),
            Self::Threshold | Self::Sure => ("lossless", 8),
            Self::BelowP => ("sampling", 1),
            Self::BestNotDraw | Self::Best => ("sampling", 8),
            Self::WrongPlace => ("positions", 2),
        }
    }

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
pub(crate) fn beliefs_of(shown: &Shown, given: &Answer) -> Vec<Belief> {
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
