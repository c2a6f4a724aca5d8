//! Moments of a run: where stepping stops, and how much memory the events between two of them take.

use crate::protocol::{Event, EventKind, Lane, Piece};

/// How far a key steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A draft token, a probe's chain, the target's pass, a verdict, a commit.
    Phase,
    /// The commit of a round, or the end of a prompt's passes.
    Round,
}

impl Stop {
    /// Whether stepping stops right after this event. Events of other lanes are no stops: what happens there is seen at
    /// the stops of the run's own lane.
    pub(crate) fn is_at(self, event: &Event) -> bool {
        if event.lane != Lane::Speculative {
            return false;
        }
        match event.kind {
            EventKind::Prefilled { .. } | EventKind::Committed { .. } => true,
            EventKind::Probed { .. }
            | EventKind::Drafted { .. }
            | EventKind::Scored { .. }
            | EventKind::Verified { .. } => self == Self::Phase,
            _ => false,
        }
    }
}

/// A moment of a run: after a number of events and, if a commit comes next, a number of its tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Whole events.
    pub events: u64,
    /// Tokens of the event that follows; fewer than it has.
    pub tokens: usize,
}

/// Output tokens that an event adds to the run's own lane.
pub(super) fn tokens_of(event: &Event) -> usize {
    match &event.kind {
        _ if event.lane != Lane::Speculative => 0,
        EventKind::Prefilled { .. } => 1,
        EventKind::Committed { tokens, .. } => tokens.len(),
        _ => 0,
    }
}

/// What it takes to keep an event, in units of some hundred bytes.
pub(super) fn weight(event: &Event) -> usize {
    let text = match &event.kind {
        EventKind::Prompted { text, .. } | EventKind::Noted { text, .. } => text.len(),
        EventKind::Notice { message } | EventKind::Failed { message } => message.len(),
        EventKind::Bookmarked { label, .. } => label.len(),
        EventKind::Prefilled { prompt, .. } => prompt.len() * size_of::<Piece>(),
        _ => 0,
    };
    1 + text / 256
}
