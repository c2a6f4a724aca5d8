//! Lines of the transcript that are laid out once and kept.
//!
//! Invariant: within a timeline a key names everything that the lines depend on, so cached lines equal newly laid out
//! ones. The cache belongs to [`View`](super::View), not to the state.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use crate::look::display::DisplayMode;
use draftscope_protocol::Lane;

use crate::view::chat::laid::{Laid, Pen};
use crate::view::chat::transcript_blocks::BlockCache;
use crate::view::compare::aligned_layout::AlignedCache;

/// Stretches from which on those go that the newest frames did not show.
const MANY: usize = 256;

/// Layouts, one per lane and frame, after which an unused stretch may be dropped.
const RECENT: u64 = 8;

/// What the lines of a whole stretch depend on, besides its events.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(in crate::view) struct Key {
    /// The run: its layouts are useless for another run.
    pub(in crate::view) run: u64,
    pub(in crate::view) turn: usize,
    /// The turn left, the tokens taken over, and whether the last of them is forced.
    pub(in crate::view) branch: Option<(u32, u32, bool)>,
    pub(in crate::view) stretch: usize,
    /// Numbers of its rounds whose discarded drafts are in the text.
    pub(in crate::view) drafted: [Option<u32>; 2],
    /// Rounds in it: the last stretch may have fewer.
    pub(in crate::view) rounds: usize,
    pub(in crate::view) lane: Lane,
    pub(in crate::view) width: u16,
    pub(in crate::view) theme: String,
    pub(in crate::view) display: DisplayMode,
    pub(in crate::view) has_signs: bool,
    /// Tokens of the thought, if it is folded.
    pub(in crate::view) folded: Option<usize>,
    /// The line on which it begins, as in [`Pen::line`]; 0 for the first.
    pub(in crate::view) goes_on: u64,
    pub(in crate::view) starts_conversation: bool,
    pub(in crate::view) is_abandoned: bool,
}

/// Stretches that cannot change any more.
#[derive(Default)]
pub(crate) struct TranscriptCache {
    /// Answers beside each other.
    pub(in crate::view) aligned: AlignedCache,
    /// Turns that are over.
    pub(in crate::view) blocks: BlockCache,
    stretches: RefCell<HashMap<Key, Kept>>,
    /// Layouts so far.
    layouts: Cell<u64>,
    /// Which timeline the stretches are of.
    timeline: Cell<u64>,
}

struct Kept {
    laid: (Laid, Rc<Pen>),
    /// The newest layout that used it.
    used: u64,
}

impl TranscriptCache {
    pub(in crate::view) fn find(&self, key: &Key) -> Option<(Laid, Rc<Pen>)> {
        let mut stretches = self.stretches.borrow_mut();
        let kept = stretches.get_mut(key)?;
        kept.used = self.layouts.get();
        Some(kept.laid.clone())
    }

    pub(in crate::view) fn keep(&self, key: Key, laid: (Laid, Rc<Pen>)) {
        self.stretches.borrow_mut().insert(key, Kept { laid, used: self.layouts.get() });
    }

    /// Begins a layout: drops all stretches of another timeline, and unused ones of other widths, themes and runs.
    pub(in crate::view) fn begin(&self, timeline: u64) {
        self.layouts.set(self.layouts.get() + 1);
        let now = self.layouts.get();
        let mut stretches = self.stretches.borrow_mut();
        if self.timeline.replace(timeline) != timeline {
            stretches.clear();
        }
        if now.is_multiple_of(RECENT) && stretches.len() > MANY {
            stretches.retain(|_, kept| kept.used + RECENT >= now);
        }
    }

    /// Number of stretches kept.
    #[cfg(test)]
    pub(in crate::view) fn len(&self) -> usize {
        self.stretches.borrow().len()
    }
}
