//! What a lane is doing, for status lines.

/// What a lane is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Nothing under way.
    #[default]
    Idle,
    /// The prompt's passes run.
    Prefilling,
    /// Between two rounds.
    Between,
    /// The drafter proposes.
    Drafting,
    /// The target runs over anchor + drafts.
    Verifying,
    /// The rule judges.
    Judging,
    /// Tokens are output, caches rolled back.
    Committing,
}

impl Phase {
    /// One word for a status line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "ready",
            Self::Prefilling => "prefilling",
            Self::Between => "decoding",
            Self::Drafting => "drafting",
            Self::Verifying => "verifying",
            Self::Judging => "judging",
            Self::Committing => "committing",
        }
    }
}
