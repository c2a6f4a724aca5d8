//! Where a replay stops: at the end of a step, or at the place of a search.
//!
//! Invariant: these functions depend only on the events. The player decides when and how long to stop.

use draftscope_protocol::{Committed, Drafted, Event, EventKind, Landmark, Lane, Outcome, Prefilled};

/// A search for the next landmark.
pub(super) struct Seek {
    landmark: Landmark,
    /// The round with the landmark, at whose end the search is over.
    round: Option<u32>,
}

impl Seek {
    pub(super) fn new(landmark: Landmark) -> Self {
        Self { landmark, round: None }
    }

    /// Whether the search ends with this event.
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
            EventKind::Committed(Committed { round, .. }) => match self.landmark {
                Landmark::Round(wanted) => *round >= wanted,
                Landmark::Reject | Landmark::Mark => self.round == Some(*round),
            },
            EventKind::Finished { .. } => self.round.is_some(),
            _ => false,
        }
    }
}

/// Whether an event is omitted: loading, and pauses of the recorded engine, since a replay has its own pauses.
pub(super) fn is_omitted(kind: &EventKind) -> bool {
    matches!(kind, EventKind::Paused | EventKind::Resumed | EventKind::Loading { .. })
}

/// What a mark is about: a round, or the prefill of a turn.
pub(super) type MarkTarget = (Option<u32>, Option<u32>);

/// The round or prefill that ends with an event.
pub(super) fn ended_target(event: &Event) -> Option<MarkTarget> {
    match event.kind {
        _ if event.lane != Lane::Speculative => None,
        EventKind::Committed(Committed { round, .. }) => Some((Some(round), None)),
        EventKind::Prefilled(Prefilled { turn, .. }) => Some((None, Some(turn))),
        _ => None,
    }
}

/// The round or prefill that a mark is about; none if it is about the moment at which it was made.
pub(super) fn target_of(mark: &EventKind) -> Option<MarkTarget> {
    let (EventKind::Noted { round, turn, .. } | EventKind::Bookmarked { round, turn, .. }) = mark else {
        return None;
    };
    round.or(*turn).map(|_| (*round, *turn))
}

/// Whether a phase of the speculative lane ends with this event. Other lanes run until it does, as in the engine.
pub(super) fn ends_phase(event: &Event) -> bool {
    event.lane == Lane::Speculative
        && matches!(
            event.kind,
            EventKind::Prefilled(_)
                | EventKind::Probed(_)
                | EventKind::Drafted(Drafted { more: false, .. })
                | EventKind::DraftStopped(_)
                | EventKind::Scored(_)
                | EventKind::Verified { .. }
                | EventKind::Committed(_)
        )
}

pub(super) fn ends_round(event: &Event) -> bool {
    event.lane == Lane::Speculative && matches!(event.kind, EventKind::Committed(_) | EventKind::Finished { .. })
}
