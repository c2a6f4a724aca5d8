//! The statistics of turns that nothing works on any more, summed once: a screen asks for the sums of all turns in every
//! frame.
//!
//! Invariant: the sums are those of the first `turns` turns as they are now. A turn that is worked on again makes
//! them void, and the next prompt sums anew.

use draftscope_protocol::Lane;

use super::stats::LaneStats;

/// Sums over the first turns of a session, by lane.
#[derive(Clone, Debug, Default)]
pub(super) struct Settled {
    pub(super) turns: usize,
    pub(super) sums: [LaneStats; Lane::ALL.len()],
}

impl Settled {
    /// The turn of this index may change.
    pub(super) fn unsettle(&mut self, index: usize) {
        if index < self.turns {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fixture::conversation;
    use super::*;
    use crate::fold::Session;
    use draftscope_protocol::{Event, EventKind, Prefilled};

    /// The sums without anything settled.
    fn summed(session: &Session, lane: Lane) -> LaneStats {
        let mut sum = session.dropped[lane.index()].clone();
        session.turns().iter().for_each(|turn| sum.merge(turn.answer(lane).stats()));
        sum
    }

    /// The fixture's turns, again and again with new numbers.
    fn long() -> Vec<Event> {
        let events = conversation().events;
        let (start, body) = events.split_first().unwrap();
        let again = (0..5_u32).flat_map(|times| {
            body.iter().cloned().map(move |mut event| {
                match &mut event.kind {
                    EventKind::Prompted { turn, .. } | EventKind::Prefilled(Prefilled { turn, .. }) => {
                        *turn += times * 100;
                    }
                    _ => {}
                }
                event
            })
        });
        std::iter::once(start.clone()).chain(again).collect()
    }

    #[test]
    fn settled_sums_equal_the_sums_of_all_turns_after_every_event() {
        let mut session = Session::new();
        for event in long() {
            session.apply(&event);
            for lane in Lane::ALL {
                assert_eq!(session.stats(*lane), summed(&session, *lane));
            }
        }
        assert!(session.settled.turns >= 4 && session.settled.turns < session.turns().len());
    }

    #[test]
    fn an_old_answer_that_goes_on_is_counted_again() {
        let mut session = Session::new();
        let events = long();
        events.iter().for_each(|event| session.apply(event));
        let number = session.turns()[0].number;
        let before = session.settled.turns;
        for event in &events {
            let mut event = event.clone();
            match &mut event.kind {
                EventKind::Prompted { turn, .. } | EventKind::Prefilled(Prefilled { turn, .. }) => *turn = number,
                EventKind::Started { .. } => continue,
                _ => {}
            }
            session.apply(&event);
            for lane in Lane::ALL {
                assert_eq!(session.stats(*lane), summed(&session, *lane));
            }
        }
        assert!(before > 0);
    }

    proptest! {
        #[test]
        fn events_in_any_order_give_the_same_sums(order in proptest::collection::vec(0_usize..10_000, 1..120)) {
            let events = long();
            let mut session = Session::new();
            session.apply(&events[0]);
            for index in order {
                session.apply(&events[1 + index % (events.len() - 1)]);
                for lane in Lane::ALL {
                    prop_assert_eq!(session.stats(*lane), summed(&session, *lane));
                }
            }
        }
    }
}
