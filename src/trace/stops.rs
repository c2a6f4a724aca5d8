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

pub(super) fn ends_phase(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::Prefilled { .. }
            | EventKind::Drafted { .. }
            | EventKind::Scored { .. }
            | EventKind::Verified { .. }
            | EventKind::Committed { .. }
    )
}

pub(super) fn ends_round(event: &Event) -> bool {
    event.lane == Lane::Speculative && matches!(event.kind, EventKind::Committed { .. } | EventKind::Finished { .. })
}
