//! Statistics of drafts by source: how many were copied from the text, and how many of these were accepted.

use super::round::Round;
use draftscope_protocol::Outcome;

/// Drafts that were copied from the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// Proposed.
    pub drafted: u64,
    /// Compared with the target.
    pub tested: u64,
    /// Accepted by the rule.
    pub accepted: u64,
}

impl Copies {
    /// Those of a round.
    pub(super) fn of(round: &Round) -> Self {
        let copied = round.drafts.iter().enumerate().filter(|(_, draft)| draft.copied.is_some());
        copied.fold(Self::default(), |sum, (index, _)| {
            let outcome = round.outcome(index);
            Self {
                drafted: sum.drafted + 1,
                tested: sum.tested + u64::from(outcome.is_some_and(|outcome| outcome != Outcome::NotReached)),
                accepted: sum.accepted + u64::from(outcome == Some(Outcome::Accepted)),
            }
        })
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self {
            drafted: self.drafted.saturating_add(other.drafted),
            tested: self.tested.saturating_add(other.tested),
            accepted: self.accepted.saturating_add(other.accepted),
        }
    }

    /// Accepted ÷ drafted; none without copies.
    #[must_use]
    pub fn acceptance_rate(&self) -> Option<f64> {
        (self.drafted > 0).then(|| self.accepted as f64 / self.drafted as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Script;
    use crate::fixture::fold;
    use draftscope_protocol::{Copied, Drafted, EventKind, Lane};

    #[test]
    fn copies_are_counted_beside_all_drafts() {
        let mut script = Script::prompted("hi", "Hello");
        script.round(&[(" a", 0.6), (" b", 0.5)], &[(" a", 0.9), (" b", 0.8), (" c", 0.7)]);
        script.round(&[(" a", 0.6), (" b", 0.5)], &[(" a", 0.9), (" x", 0.8), (" c", 0.7)]);
        for event in &mut script.events {
            if let EventKind::Drafted(Drafted { index: 1, copied, .. }) = &mut event.kind {
                *copied = Some(Copied { from: 3, len: 2, chance: Some(0.5) });
            }
        }
        let session = fold(&script.events);
        let stats = session.stats(Lane::Speculative);
        let copies = stats.copies();
        assert_eq!((copies.drafted, copies.tested, copies.accepted), (2, 2, 1));
        assert_eq!((copies.acceptance_rate(), stats.drafted(), stats.accepted()), (Some(0.5), 4, 3));
        let json = serde_json::to_value(stats.summary()).unwrap();
        assert_eq!(
            (&json["num_copied_draft_tokens"], &json["num_accepted_copied_draft_tokens"]),
            (&2.into(), &1.into())
        );
        let plain = serde_json::to_value(session.stats(Lane::Plain).summary()).unwrap();
        assert_eq!(plain.get("num_copied_draft_tokens"), None);
    }
}
