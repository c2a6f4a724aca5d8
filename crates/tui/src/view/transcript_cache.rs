//! Lines of the transcript that are laid out once and kept.
//!
//! Invariant: within a timeline a key names everything that the lines depend on, so cached lines equal newly laid out
//! ones. The cache belongs to [`View`](super::View), not to the state.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use ratatui::text::Line;

use crate::look::display::DisplayMode;
use crate::widgets::flow::{Flow, Tagged};
use draftscope_protocol::Lane;
use draftscope_session::text::Joiner;

use super::aligned_layout::AlignedCache;
use super::token_text::Fallen;
use super::transcript_blocks::BlockCache;

/// Stretches from which on those go that the newest frames did not show.
const MANY: usize = 256;

/// Layouts, one per lane and frame, after which an unused stretch may be dropped.
const RECENT: u64 = 8;

/// Lines of a stretch, the places of their tokens, and the line on which the selected round begins.
#[derive(Clone, Default)]
pub(super) struct Laid {
    pub(super) turn: usize,
    pub(super) lines: Rc<[Line<'static>]>,
    pub(super) tags: Rc<[Vec<Tagged>]>,
    pub(super) selected: Option<usize>,
}

/// What one stretch hands on to the next.
#[derive(Clone)]
pub(super) struct Pen {
    pub(super) flow: Flow,
    pub(super) joiner: Joiner,
    /// For discarded drafts: it continues the kept text before them.
    pub(super) drafts: Joiner,
    /// A hash of the stretch's last line.
    pub(super) line: u64,
    /// Whether a line stands for the folded thought already.
    pub(super) has_fold: bool,
    /// Discarded drafts without a sign so far.
    pub(super) fallen: Fallen,
}

impl Pen {
    /// At the end of a stretch.
    pub(super) fn ended(mut self) -> Self {
        let mut state = DefaultHasher::new();
        self.flow.hash_line(&mut state);
        (&self.joiner, &self.drafts, &self.fallen).hash(&mut state);
        self.line = state.finish();
        self
    }
}

/// What the lines of a whole stretch depend on, besides its events.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// The run: its layouts are useless for another run.
    pub(super) run: u64,
    pub(super) turn: usize,
    /// The turn left, the tokens taken over, and whether the last of them is forced.
    pub(super) branch: Option<(u32, u32, bool)>,
    pub(super) stretch: usize,
    /// Rounds in it: the last stretch may have fewer.
    pub(super) rounds: usize,
    pub(super) lane: Lane,
    pub(super) width: u16,
    pub(super) theme: String,
    pub(super) display: DisplayMode,
    pub(super) has_signs: bool,
    /// Tokens of the thought, if it is folded.
    pub(super) folded: Option<usize>,
    /// The line on which it begins, as in [`Pen::line`]; 0 for the first.
    pub(super) goes_on: u64,
    pub(super) starts_conversation: bool,
    pub(super) is_abandoned: bool,
}

/// Stretches that cannot change any more.
#[derive(Default)]
pub(crate) struct TranscriptCache {
    /// Answers beside each other.
    pub(super) aligned: AlignedCache,
    /// Turns that are over.
    pub(super) blocks: BlockCache,
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
    pub(super) fn find(&self, key: &Key) -> Option<(Laid, Rc<Pen>)> {
        let mut stretches = self.stretches.borrow_mut();
        let kept = stretches.get_mut(key)?;
        kept.used = self.layouts.get();
        Some(kept.laid.clone())
    }

    pub(super) fn keep(&self, key: Key, laid: (Laid, Rc<Pen>)) {
        self.stretches.borrow_mut().insert(key, Kept { laid, used: self.layouts.get() });
    }

    /// Begins a layout: drops all stretches of another timeline, and unused ones of other widths, themes and runs.
    pub(super) fn begin(&self, timeline: u64) {
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
    pub(super) fn len(&self) -> usize {
        self.stretches.borrow().len()
    }
}
