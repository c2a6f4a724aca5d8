//! Where the user looks: page, pane and rounds, and what a frame measured of them.

pub(crate) mod filter;
pub(crate) mod hit_map;
pub(crate) mod marks;
pub(crate) mod page;
pub(crate) mod search;

use draftscope_session::round_at::RoundAt;
use draftscope_session::{Session, Turn};

use self::filter::Filter;
use self::hit_map::HitMap;
use self::page::{Page, Pane};
use crate::app::overlay::Overlay;
use crate::look::display::DisplayMode;

/// Where the user looks.
///
/// Invariant: indices into a session are checked wherever they are used, so a session can be folded again, or replaced by
/// another, without losing the place.
pub(crate) struct Place {
    pub(crate) page: Page,
    pub(crate) pane: Pane,
    pub(crate) is_zoomed: bool,
    /// One round is drawn large instead of the page.
    pub(crate) presents: bool,
    /// The lines of the loop are there, above the rounds and in the presenter.
    pub(crate) reads_loop: bool,
    pub(crate) scroll: Scroll,
    /// None follows the live round.
    pub(crate) selected: Option<RoundAt>,
    /// Column of the selected round; `None` picks the deciding one.
    pub(crate) cell: Option<usize>,
    pub(crate) filter: Filter,
    /// What covers the page and takes the keys.
    pub(crate) overlay: Option<Overlay>,
    /// Plain and speculative decoding beside each other.
    pub(crate) split: bool,
    /// What the user chose; without a choice it depends on the answer: see [`App::display_of`](super::App::display_of).
    pub(crate) display: Option<DisplayMode>,
    /// Whether thought is shown in full.
    pub(crate) shows_thought: bool,
    /// What the last frame measured.
    pub(crate) hit_map: HitMap,
}

impl Place {
    /// The first pane of a page, with the newest round on show.
    pub(crate) fn new(page: Page, split: bool) -> Self {
        Self {
            page,
            pane: page.panes()[0],
            is_zoomed: false,
            presents: false,
            reads_loop: false,
            scroll: Scroll::default(),
            selected: None,
            cell: None,
            filter: Filter::default(),
            overlay: None,
            split,
            display: None,
            shows_thought: false,
            hit_map: HitMap::default(),
        }
    }

    /// Selects nothing and follows what is live.
    pub(crate) fn follow_live(&mut self) {
        (self.selected, self.cell, self.scroll) = (None, None, Scroll::Follow);
    }

    /// Selects a round and a column of it, and brings it into view.
    pub(crate) fn select(&mut self, at: RoundAt, cell: Option<usize>) {
        (self.selected, self.cell, self.scroll) = (Some(at), cell, Scroll::Selected);
    }

    /// Puts a line of the transcript on top; the last one follows what is new.
    pub(crate) fn scroll_to(&mut self, top: usize) {
        self.scroll = if top >= self.hit_map.max_top { Scroll::Follow } else { Scroll::Top(top) };
    }

    /// The turn of the selected round, else the newest.
    pub(crate) fn turn<'a>(&self, session: &'a Session) -> Option<&'a Turn> {
        self.selected.and_then(|at| session.turns().get(at.turn)).or_else(|| session.turn())
    }

    /// Gives the prompt box the keys, where it is there and nothing covers it.
    pub(crate) fn return_to_prompt(&mut self) {
        if self.page == Page::Chat && self.overlay.is_none() {
            self.pane = Pane::Prompt;
        }
    }

    /// Whether a pane takes the keys.
    pub(crate) fn has_focus(&self, pane: Pane) -> bool {
        self.pane == pane && self.overlay.is_none()
    }
}

/// Which line of the transcript is on top.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Scroll {
    /// The newest line is in view.
    #[default]
    Follow,
    /// This one.
    Top(usize),
    /// The selected round is in view.
    Selected,
    /// The turn of the selected round begins on top.
    Turn,
}
