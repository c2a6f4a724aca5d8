//! How much of the output a drafter could have drafted at all, where its vocabulary lacks tokens of the target.

use super::round::Round;

/// Tokens committed in rounds that report whether the drafter's vocabulary has the target's own.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct DraftVocab {
    written: u64,
    lacking: u64,
}

impl DraftVocab {
    /// Adds a complete round. Its accepted drafts are in the drafter's vocabulary; its last token may have been cut off.
    pub(super) fn add(&mut self, round: &Round) {
        if round.verdict.as_ref().is_some_and(|verdict| verdict.next_in_draft_vocab.is_some()) {
            let lacks = round.next_is_undraftable() && round.committed().len() > round.accepted();
            self.written += round.committed().len() as u64;
            self.lacking += u64::from(lacks);
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.written = self.written.saturating_add(other.written);
        self.lacking = self.lacking.saturating_add(other.lacking);
    }

    /// Tokens that the vocabulary lacks; `None` where no round reported it.
    pub(super) fn lacking(self) -> Option<u64> {
        (self.written > 0).then_some(self.lacking)
    }

    /// Tokens that the vocabulary has ÷ tokens.
    pub(super) fn share(self) -> Option<f64> {
        (self.written > 0).then(|| self.written.saturating_sub(self.lacking) as f64 / self.written as f64)
    }
}
