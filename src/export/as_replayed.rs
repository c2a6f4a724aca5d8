//! The event as a replay would send it.

use draftscope_protocol::{Event, EventKind};
use draftscope_session::trace::Recording;

/// The event as a replay would send it: its header says that the source takes no prompts.
pub(super) fn as_replayed(mut event: Event, recording: &Recording) -> Event {
    if let EventKind::Started { header } = &mut event.kind {
        header.capabilities.can_generate = false;
        header.capabilities.ends_at_us = Some(recording.ends_at_us());
        header.capabilities.turns = recording.turns().clone();
    }
    event
}
