//! Lines of the transcript that are laid out, and what one stretch of them hands on to the next.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use ratatui::text::Line;

use crate::widgets::flow::{Flow, Tagged};
use draftscope_session::text::Joiner;

/// Lines of a stretch, the places of their tokens, and the line on which the selected round begins.
#[derive(Clone, Default)]
pub(in crate::view) struct Laid {
    pub(in crate::view) turn: usize,
    pub(in crate::view) lines: Rc<[Line<'static>]>,
    pub(in crate::view) tags: Rc<[Vec<Tagged>]>,
    pub(in crate::view) selected: Option<usize>,
}

/// What one stretch hands on to the next.
#[derive(Clone)]
pub(in crate::view) struct Pen {
    pub(in crate::view) flow: Flow,
    pub(in crate::view) joiner: Joiner,
    /// For discarded drafts: it continues the kept text before them.
    pub(in crate::view) drafts: Joiner,
    /// A hash of the stretch's last line.
    pub(in crate::view) line: u64,
    /// Whether a line stands for the folded thought already.
    pub(in crate::view) has_fold: bool,
    /// Discarded drafts without a sign so far.
    pub(in crate::view) fallen: Fallen,
}

impl Pen {
    /// At the end of a stretch.
    pub(in crate::view) fn ended(mut self) -> Self {
        let mut state = DefaultHasher::new();
        self.flow.hash_line(&mut state);
        (&self.joiner, &self.drafts, &self.fallen).hash(&mut state);
        self.line = state.finish();
        self
    }
}

/// Discarded drafts that the next sign counts, and where the mouse finds them.
#[derive(Clone, Copy, Debug, Default, Hash)]
pub(in crate::view) struct Fallen {
    pub(super) count: usize,
    pub(super) place: (u32, usize),
}
