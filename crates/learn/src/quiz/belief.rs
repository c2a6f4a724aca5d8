//! What people believe of verification who judge rounds wrongly: names, sentences, and the lesson that treats each.

draftscope_protocol::named_enum! {
    /// An idea of how drafts are judged that the engine does not follow.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Belief {
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
    #[must_use]
    pub const fn sentence(self) -> &'static str {
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
    #[must_use]
    pub const fn lesson(self) -> (&'static str, usize) {
        match self {
            Self::AfterRejection | Self::OtherBranch => ("round", 8),
            Self::All | Self::SecondBest => ("round", 4),
            Self::BonusAfterRejection | Self::WrongName => ("round", 6),
            Self::NothingAdded => ("round", 5),
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
}
