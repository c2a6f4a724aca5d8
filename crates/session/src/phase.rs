//! What a lane is doing, for status lines.

use draftscope_protocol::named_enum;

named_enum! {
    /// What a lane is doing.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Phase {
        /// Idle.
        #[default]
        Idle = "ready",
        /// The prompt's passes run.
        Prefilling = "prefilling",
        /// Between two rounds.
        Between = "decoding",
        /// The drafter proposes.
        Drafting = "drafting",
        /// The target runs over anchor + drafts.
        Verifying = "verifying",
        /// The rule judges.
        Judging = "judging",
        /// Tokens are output, caches rolled back.
        Committing = "committing",
    }
}
