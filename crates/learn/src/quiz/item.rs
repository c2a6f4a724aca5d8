//! A quiz item: one round that really happened, and where it came from.

use draftscope_session::Round;
use draftscope_session::text::one_line;

draftscope_protocol::named_enum! {
    /// What an item asks about.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Category {
        /// A draft is accepted although its p is low, because it is the target's most probable token.
        LowP = "low-p",
        /// A draft is rejected although its p is high, because another token is more probable.
        HighP = "high-p",
        /// All drafts are accepted.
        Bonus = "bonus",
        /// The first draft is rejected.
        First = "first",
        /// Rejection sampling accepts a draft with p below q, because u is below p/q.
        BelowRatio = "below-ratio",
        /// Rejection sampling rejects a draft, because u is not below p/q.
        AboveRatio = "above-ratio",
        /// A rule that is not lossless.
        Lossy = "lossy",
        /// A draft tree.
        Tree = "tree",
    }
}

/// A round to judge.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Names the round: in the bank by the run that it comes from, else by its place in the session.
    pub id: String,
    /// None for a round of the session that fits no category of the bank.
    pub category: Option<Category>,
    /// What was typed.
    pub prompt: String,
    /// Where the text of the answer stands when the round begins.
    pub context: String,
    /// The round with its verdict.
    pub round: Round,
}

impl Item {
    /// Two items with the same text before and the same drafts ask the same.
    #[must_use]
    pub fn asks_same(&self, other: &Self) -> bool {
        let tokens = |item: &Self| item.round.drafts.iter().map(|draft| draft.token.id).collect::<Vec<_>>();
        self.id == other.id || (self.context == other.context && tokens(self) == tokens(other))
    }

    /// Two items that continue the same text: the answer to one gives the other away.
    #[must_use]
    pub fn continues_same(&self, other: &Self) -> bool {
        self.prompt == other.prompt && self.context == other.context
    }
}

/// The reason for a verdict as the round panel gives it.
#[must_use]
pub fn reason(item: &Item) -> String {
    let column = item.round.deciding_column();
    let finding = draftscope_session::explain(&item.round, column);
    finding.map_or(String::new(), |finding| one_line(&finding.text).into_owned())
}
