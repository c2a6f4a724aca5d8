//! The screen: which panel is where at which size.
//!
//! ```text
//!   status ────────────────────────────────
//!   tabs ──────────────────────────────────   (22 lines and more, not in presenter mode)
//!   the page: its panes, the zoomed one, or in presenter mode one round
//!   time ──────────────────────────────────   (in the past, and where a recording plays)
//!   footer ────────────────────────────────
//! ```
//!
//! Invariant: drawing changes nothing; measurements of a frame (how far one can scroll, what is under the mouse) go
//! back to the caller as a [`HitMap`]. Any size from 1×1 up draws without panic. A room a page and one file a panel;
//! `layout.rs` places them.

mod bars;
mod chat;
mod compare;
mod inspect;
mod layout;
mod learn;
mod other_screens;
mod overlays;
mod panel;
mod panes;
mod prelude;
mod rounds;
mod screen;
mod screens;
mod speed;
mod values;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};

use draftscope_session::Timeline;

use crate::app::place::hit_map::HitMap;
use crate::app::{App, Overlay};
use crate::input::keymap::Context;
use crate::look::theme::{Role, Theme};
use crate::terminal::plain_glyphs;

use bars::{footer, input_line, player, search, status, tabs, time};
use chat::transcript_cache::TranscriptCache;
use learn::lesson;
pub(super) use other_screens::diff::render as diff;
pub(super) use other_screens::fleet::render as fleet;
use overlays::{exports, help, palette, quit, rival, sent_prompt, settings, themes, tour, what_if, why};
#[cfg(test)]
pub(crate) use panel::cuts;
pub use screen::MIN_SIZE;
use screen::Screen;

/// Draws frames, and caches transcript lines that cannot change.
#[derive(Default)]
pub struct View {
    lines: TranscriptCache,
}

impl View {
    /// Draws one frame.
    pub fn draw(&self, time: &Timeline, app: &App, theme: &Theme, frame: &mut Frame) -> HitMap {
        let screen = Screen { time, session: time.shown(), app, theme, lines: &self.lines };
        let area = frame.area();
        let mut hit_map = HitMap { hits: Vec::new(), ..app.place.hit_map };
        frame.buffer_mut().set_style(area, theme[Role::Text]);
        if area.width < MIN_SIZE.0 || area.height < MIN_SIZE.1 {
            screens::too_small(screen, area, frame);
        } else if screens::is_loading(screen) {
            screens::loading(screen, area, frame);
        } else {
            main(screen, area, frame, &mut hit_map);
        }
        if area.width >= MIN_SIZE.0 && area.height >= MIN_SIZE.1 {
            tour::render(screen, area, frame);
            screens::failure(screen, area, frame);
            overlay(screen, area, frame, &mut hit_map);
        }
        if app.options.ascii {
            plain_glyphs::replace(frame.buffer_mut());
        }
        hit_map
    }

    /// Rows that show all panels beside the words of the lesson's step on show in so many columns, without sliders; 0 if
    /// there is none.
    pub(super) fn lesson_panel_rows(&self, time: &Timeline, app: &App, columns: u16) -> u16 {
        lesson::picture_rows(self.screen(time, app), columns)
    }

    /// Draws these panels over the whole frame.
    pub(super) fn draw_lesson_panels(&self, time: &Timeline, app: &App, frame: &mut Frame) {
        let screen = self.screen(time, app);
        let area = frame.area();
        frame.buffer_mut().set_style(area, screen.theme[Role::Text]);
        let sides = lesson::pictured(screen, area);
        sides.into_iter().for_each(|side| panes::learn_panel(screen, side, frame, &mut HitMap::default()));
    }

    fn screen<'a>(&'a self, time: &'a Timeline, app: &'a App) -> Screen<'a> {
        Screen { time, session: time.shown(), app, theme: app.theme(), lines: &self.lines }
    }
}

fn main(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) {
    let [status, tabs, body, time, footer] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(u16::from(area.height >= 22 && !screen.app.place.presents)),
        Constraint::Min(3),
        Constraint::Length(u16::from(screen.time.is_past() || screen.app.clock.is_recording)),
        Constraint::Length(footer::height(screen, area)),
    ])
    .areas(area);
    status::render(screen, status, frame);
    tabs::render(screen, tabs, frame, hit_map);
    layout::render(screen, body, frame, hit_map);
    if screen.app.clock.is_recording {
        player::render(screen, time, frame, hit_map);
    } else {
        time::render(screen, time, frame, hit_map);
    }
    footer::render(screen, footer, frame);
}

fn overlay(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) {
    match &screen.app.place.overlay {
        None => {}
        Some(Overlay::Help(help)) => hit_map.help_max = help::render(screen, (Context::Browse, help), area, frame),
        Some(Overlay::Palette(entry)) => palette::render(screen, entry, area, frame),
        Some(Overlay::Search(entry)) => search::render(screen, entry, area, frame),
        Some(Overlay::Note(entry, place)) => input_line::note(screen, entry, *place, area, frame),
        Some(Overlay::GoTo(entry)) => input_line::place(screen, entry, area, frame),
        Some(Overlay::Draft(entry)) => input_line::draft(screen, entry, area, frame),
        Some(Overlay::Settings(panel)) => settings::render(screen, *panel, area, frame),
        Some(Overlay::Versus(row)) => rival::render(screen, *row, area, frame),
        Some(Overlay::Export(row)) => exports::render(screen, *row, area, frame),
        Some(Overlay::SentPrompt(line)) => hit_map.help_max = sent_prompt::render(screen, *line, area, frame),
        Some(Overlay::Why) => why::render(screen, area, frame),
        Some(Overlay::Quit) => quit::render(screen, area, frame),
        Some(Overlay::Themes(_)) => themes::render(screen, area, frame),
        Some(Overlay::WhatIf(form)) => what_if::render(screen, form, area, frame),
    }
}
