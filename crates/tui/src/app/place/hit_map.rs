//! Measurements of a frame: how far one can scroll, and what is under the mouse.

use ratatui::layout::Rect;

use crate::app::place::page::{Page, Pane};
use draftscope_session::round_at::RoundAt;

/// The round number of a token that came from the prompt's pass.
pub(crate) const PREFILL: u32 = u32::MAX;

/// What is at a place of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Page(Page),
    Pane(Pane),
    /// A token of the answer: index of the turn, number of the round.
    Token {
        turn: usize,
        round: u32,
        column: usize,
    },
    Round {
        at: RoundAt,
        column: Option<usize>,
    },
    /// A starter prompt.
    Starter(usize),
    /// A moment of the run, in events.
    Moment(u64),
    /// A time of a recording, in microseconds.
    Time(u64),
}

/// An area of the screen and what it shows; later ones cover earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hit {
    pub(crate) area: Rect,
    pub(crate) target: Target,
}

/// What a frame measured, for the keys that scroll and for the mouse.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HitMap {
    /// Line of the transcript that was on top.
    pub top: usize,
    /// Largest such line.
    pub max_top: usize,
    /// Lines of a page.
    pub page: usize,
    /// Largest first line of the help.
    pub help_max: usize,
    /// Largest first line of a lesson's words.
    pub lesson_max: usize,
    /// Panels of a lesson's step, where they have the whole page.
    pub lesson_panels: usize,
    pub(crate) hits: Vec<Hit>,
}

impl HitMap {
    pub(crate) fn hit(&mut self, area: Rect, target: Target) {
        self.hits.push(Hit { area, target });
    }
}
