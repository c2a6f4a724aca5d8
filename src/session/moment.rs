//! Moments of a run: where one can stop, and what the events between two of them weigh.

use crate::protocol::{Event, EventKind, Lane, Piece};

/// A distance in time that a key moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A draft token, a probe's chain, the target's pass, a verdict, a commit.
    Phase,
    /// The commit of a round, or the end of a prompt's passes.
    Round,
}

impl Stop {
    /// Whether a moment right after this event is one to stop at. Other lanes run beside: what happens
    /// there is seen at the stops of the run's own.
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

/// A moment of a run: after so many events and, of a commit that comes next, so many of its tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Events, all of them whole.
    pub events: u64,
    /// Tokens of the event that follows; fewer than it has.
    pub tokens: usize,
}

/// Output tokens that an event brings in the run's own lane.
pub(super) fn tokens_of(event: &Event) -> usize {
    match &event.kind {
        _ if event.lane != Lane::Speculative => 0,
        EventKind::Prefilled { .. } => 1,
        EventKind::Committed { tokens, .. } => tokens.len(),
        _ => 0,
    }
}

/// What keeping an event amounts to: some hundred bytes each.
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
