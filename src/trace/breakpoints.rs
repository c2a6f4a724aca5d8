//! Where a replay stops: at the end of a step, or where it finds what is looked for.
//!
//! Invariant: told by the events alone; when and how long to stop is the player's.

use crate::protocol::{Event, EventKind, Landmark, Lane, Outcome};

/// What is looked for.
pub(super) struct Seek {
    landmark: Landmark,
    /// The round in which it was found and whose end is awaited.
    round: Option<u32>,
}

impl Seek {
    pub(super) fn new(landmark: Landmark) -> Self {
        Self { landmark, round: None }
    }

    /// Whether the search is over with this event.
    pub(super) fn ends_with(&mut self, event: &Event) -> bool {
        if event.lane != Lane::Speculative {
            return false;
        }
        match &event.kind {
            EventKind::Noted { .. } | EventKind::Bookmarked { .. } => self.landmark == Landmark::Mark,
            EventKind::Verified { round, verdict } if self.landmark == Landmark::Reject => {
                if verdict.judgements.iter().any(|judgement| judgement.outcome == Outcome::Rejected) {
                    self.round = Some(*round);
                }
                false
            }
            EventKind::Committed { round, .. } => match self.landmark {
                Landmark::Round(wanted) => *round >= wanted,
                Landmark::Reject | Landmark::Mark => self.round == Some(*round),
            },
            EventKind::Finished { .. } => self.round.is_some(),
            _ => false,
        }
    }
}

/// Pauses of the recorded engine: this source has its own.
pub(super) fn is_held_by_engine(kind: &EventKind) -> bool {
    matches!(kind, EventKind::Paused | EventKind::Resumed | EventKind::Loading { .. })
}

/// A place as marks name it: the round, or the turn of a prompt's pass.
pub(super) type Place = (Option<u32>, Option<u32>);

/// The place that ends with an event.
pub(super) fn ends_place(event: &Event) -> Option<Place> {
    match event.kind {
        _ if event.lane != Lane::Speculative => None,
        EventKind::Committed { round, .. } => Some((Some(round), None)),
        EventKind::Prefilled { turn, .. } => Some((None, Some(turn))),
        _ => None,
    }
}

/// The place that a mark is about; none for the moment at which it was made.
pub(super) fn place_of(mark: &EventKind) -> Option<Place> {
    let (EventKind::Noted { round, turn, .. } | EventKind::Bookmarked { round, turn, .. }) = mark else {
        return None;
    };
    round.or(*turn).map(|_| (*round, *turn))
}

/// Whether a phase of the run's own lane ends; others go on beside until it does, as in the engine.
pub(super) fn ends_phase(event: &Event) -> bool {
    event.lane == Lane::Speculative
        && matches!(
            event.kind,
            EventKind::Prefilled { .. }
                | EventKind::Probed { .. }
                | EventKind::Drafted { .. }
                | EventKind::Scored { .. }
                | EventKind::Verified { .. }
                | EventKind::Committed { .. }
        )
}

pub(super) fn ends_round(event: &Event) -> bool {
    event.lane == Lane::Speculative && matches!(event.kind, EventKind::Committed { .. } | EventKind::Finished { .. })
}
