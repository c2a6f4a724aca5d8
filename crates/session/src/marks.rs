//! Notes and bookmarks that people put into a recording.
//!
//! Invariant: at most [`MAX_MARKS`] are kept, in the order in which they came, each with the round that it is about; a
//! mark of a moment belongs to the newest round of the speculative lane. A place in a run is a round, or the pass over
//! a turn's prompt, which comes before its rounds.

use std::fmt;

use super::round::Round;

/// Marks kept; later ones are dropped.
pub const MAX_MARKS: usize = 10_000;

/// A note or a bookmark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// When, on the events' clock.
    pub at_us: u64,
    /// What it is about; `None` before the first prompt was read.
    pub place: Option<PassId>,
    /// Whether it is a bookmark (else a note).
    pub is_bookmark: bool,
    /// Its text; may be empty for a bookmark. Not safe to print as it is.
    pub text: String,
}

/// A place of the speculative lane, in the order of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PassId {
    /// Number of the turn.
    pub turn: u32,
    /// Number of the round; 0 is the pass over the turn's prompt.
    pub round: u32,
}

impl PassId {
    /// The place of a round.
    #[must_use]
    pub const fn of(round: &Round) -> Self {
        Self { turn: round.turn, round: round.number() }
    }

    /// As an event names it: the round, or the turn if it is a prompt's pass.
    #[must_use]
    pub const fn parts(self) -> (Option<u32>, Option<u32>) {
        if self.round > 0 { (Some(self.round), None) } else { (None, Some(self.turn)) }
    }
}

impl fmt::Display for PassId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.round {
            0 => write!(f, "the prompt of turn {}", self.turn),
            round => write!(f, "round {round}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::conversation;
    use super::*;
    use crate::fixture::fold;
    use draftscope_protocol::{EventKind, Lane};

    #[test]
    fn marks_find_their_round_and_the_end_adds_up() {
        let mut script = conversation();
        let note = |round, turn| EventKind::Noted { text: "odd".into(), round, turn };
        for (round, turn) in [(Some(2), None), (None, Some(1)), (Some(0), None), (Some(99), None)] {
            script.push(Lane::Speculative, note(round, turn));
        }
        script.push(Lane::Speculative, EventKind::Bookmarked { round: None, turn: None, label: String::new() });
        let mut session = fold(&script.events);
        let marks: Vec<_> = session.marks().iter().map(|m| (m.place.unwrap(), m.is_bookmark)).collect();
        let place = |turn, round| PassId { turn, round };
        assert_eq!(
            marks,
            [
                (place(1, 2), false),
                (place(1, 0), false),
                (place(2, 0), false),
                (place(2, 99), false),
                (place(2, 10), true)
            ]
        );
        assert!(place(1, 9) < place(2, 0) && place(2, 0) < place(2, 10), "in the order of the run");
        let end = session.end().unwrap();
        assert_eq!(end.seq, script.events.len() as u64);
        let EventKind::Ended { summary, plain } = &end.kind else { panic!("{end:?}") };
        assert_eq!((summary.rounds, summary.num_spec_steps), (9, Some(9)));
        assert_eq!(
            (summary.num_spec_steps, summary.num_draft_tokens, summary.num_spec_tokens),
            (Some(9), Some(27), Some(3))
        );
        assert_eq!(summary.acceptance_histogram.iter().sum::<u64>(), 9);
        assert_eq!(plain.as_ref().unwrap().num_draft_tokens, Some(0));
        session.apply(&end);
        assert!(session.has_ended() && session.end().is_none());
        session.apply(&script.events[0]); // played again
        assert!(session.turns().is_empty() && session.marks().is_empty() && !session.has_ended());
    }
}
