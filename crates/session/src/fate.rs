//! What became of a token: where an output token came from, or why a draft is not output.

/// Where an output token came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Provenance {
    /// First of the answer, picked from the prompt's last row.
    Prefill,
    /// An accepted draft.
    Accepted,
    /// The target's, instead of a rejected draft.
    Recovered,
    /// The target's, after all drafts were accepted.
    Bonus,
    /// From a round without drafts.
    Plain,
    /// Copied from the turn that this one branches off.
    Kept,
}

/// The fate of any token on screen, output or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It is output; provenance says how.
    Committed(Provenance),
    /// Drafted, compared, discarded.
    Rejected,
    /// Drafted after a rejected one and discarded unjudged.
    NotReached,
    /// Drafted and not judged yet.
    Pending,
    /// Preferred or copied by the drafter and forbidden by the grammar: it never became a draft.
    Refused,
}
