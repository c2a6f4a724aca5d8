//! What people left in a run's record, and the line that ends it.
//!
//! Invariant: at most [`MAX_MARKS`] are kept, in the order in which they came, each with the round it
//! is about; a mark of a moment belongs to the newest round of the speculative lane.

use crate::protocol::{Event, EventKind, Lane};

use super::{LaneStats, Session};

/// Marks kept; later ones are left out.
pub const MAX_MARKS: usize = 10_000;

/// A note or a bookmark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// When, as events count it.
    pub at_us: u64,
    /// Round of the speculative lane; none before the first.
    pub round: Option<u32>,
    /// Whether it is a place to come back to (else a note).
    pub is_bookmark: bool,
    /// What it says; may be empty for a bookmark. Not for a terminal as it stands.
    pub text: String,
}

impl Session {
    /// Notes and bookmarks, oldest first.
    #[must_use]
    pub fn marks(&self) -> &[Mark] {
        &self.marks
    }

    pub(super) fn mark(&mut self, event: &Event) {
        let (round, text, is_bookmark) = match &event.kind {
            EventKind::Noted { text, round } => (*round, text, false),
            EventKind::Bookmarked { round, label } => (*round, label, true),
            _ => return,
        };
        if self.marks.len() < MAX_MARKS {
            let newest =
                || Some(self.turns.iter().rev().find_map(|t| t.answer(Lane::Speculative).rounds.last())?.round);
            let round = round.or_else(newest);
            self.marks.push(Mark { at_us: event.at_us, round, is_bookmark, text: text.clone() });
        }
    }

    /// The event that ends a run's record; none for a run that has not begun, has failed or has
    /// said its end already.
    #[must_use]
    pub fn end(&self) -> Option<Event> {
        if self.header.is_none() || self.failure.is_some() || self.ended {
            return None;
        }
        let plain = self.stats(Lane::Plain);
        let kind = EventKind::Ended {
            summary: Box::new(self.stats(Lane::Speculative).summary()),
            plain: (plain != LaneStats::default()).then(|| Box::new(plain.summary())),
        };
        Some(Event { seq: self.last.0.saturating_add(1), at_us: self.last.1, lane: Lane::Speculative, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::conversation;
    use super::super::tests::fold;
    use super::*;

    #[test]
    fn marks_find_their_round_and_the_end_adds_up() {
        let mut script = conversation();
        script.push(Lane::Speculative, EventKind::Noted { text: "odd".into(), round: Some(2) });
        script.push(Lane::Speculative, EventKind::Bookmarked { round: None, label: String::new() });
        let mut session = fold(&script.events);
        let marks: Vec<_> = session.marks().iter().map(|m| (m.round, m.is_bookmark, m.text.as_str())).collect();
        assert_eq!(marks, [(Some(2), false, "odd"), (Some(10), true, "")]);
        let end = session.end().unwrap();
        assert_eq!(end.seq, script.events.len() as u64);
        let EventKind::Ended { summary, plain } = &end.kind else { panic!("{end:?}") };
        assert_eq!((summary.num_spec_steps, summary.num_draft_tokens, summary.num_spec_tokens), (9, 27, 3));
        assert_eq!(summary.acceptance_histogram.iter().sum::<u64>(), 9);
        assert_eq!(plain.as_ref().unwrap().num_draft_tokens, 0);
        session.apply(&end);
        assert!(session.has_ended() && session.end().is_none());
        session.apply(&script.events[0]); // played again
        assert!(session.turns().is_empty() && session.marks().is_empty() && !session.has_ended());
    }
}
