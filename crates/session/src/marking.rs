//! Notes and bookmarks as a session takes them, and the event that ends its recording.

use draftscope_protocol::{Event, EventKind, Lane};

use super::fold::Session;
use super::marks::{MAX_MARKS, Mark, PassId};
use super::stats::LaneStats;

impl Session {
    /// Notes and bookmarks, oldest first.
    #[must_use]
    pub fn marks(&self) -> &[Mark] {
        &self.marks
    }

    pub(super) fn mark(&mut self, event: &Event) {
        let (about, text, is_bookmark) = match &event.kind {
            EventKind::Noted { text, round, turn } => ((*round, *turn), text, false),
            EventKind::Bookmarked { round, turn, label } => ((*round, *turn), label, true),
            _ => return,
        };
        if self.marks.len() < MAX_MARKS {
            let place = self.place(about);
            self.marks.push(Mark { at_us: event.at_us, place, is_bookmark, text: text.clone() });
        }
    }

    /// The place that an event names by its round or turn; the newest round if it names neither.
    fn place(&self, about: (Option<u32>, Option<u32>)) -> Option<PassId> {
        let mut rounds = self.turns.iter().rev().flat_map(|turn| turn.answer(Lane::Speculative).rounds.iter().rev());
        let newest = self.turns.last().map(|turn| PassId { turn: turn.number, round: 0 });
        match about {
            (None | Some(0), Some(turn)) => Some(PassId { turn, round: 0 }),
            (Some(0), None) => newest, // older writers counted it so and named no turn
            (Some(number), _) => {
                let turn = rounds.find(|round| round.number() <= number).map(|round| round.turn);
                turn.or(newest.map(|place| place.turn)).map(|turn| PassId { turn, round: number })
            }
            (None, None) => rounds.next().map(|round| PassId::of(round)),
        }
    }

    /// The event that ends a run's recording; `None` for a run that has not begun, has failed or has ended already.
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
