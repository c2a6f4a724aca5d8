//! The screen: which panel stands where at which size.
//!
//! ```text
//!   status ────────────────────────────────
//!   transcript (or split) │ speed
//!                         │ speedup           (not compact)
//!                         │ tokens per round  (not compact)
//!                         │ acceptance by position
//!   round ─────────────────────────────────
//!   prompt ────────────────────────────────
//!   footer ────────────────────────────────
//! ```
//!
//! Invariant: drawing changes nothing; what a frame measured (how far one can scroll) goes back to
//! the caller as [`Seen`]. Any size from 1×1 up draws without panic. One file per panel.

mod footer;
mod help;
mod per_round;
mod positions;
mod prompt;
mod round;
mod screens;
mod speed;
mod speedup;
mod status;
mod transcript;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::Block;

use crate::protocol::Lane;
use crate::session::{Fate, Session, Turn};

use super::app::App;
use super::fate;
use super::theme::{Role, Theme};

pub(super) use round::telling_column;
pub(super) use transcript::Cache;

/// Below this the screen only says that it is too small.
const MIN_SIZE: (u16, u16) = (60, 16);

/// What a frame measured, for the keys that scroll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Line of the transcript that was on top.
    pub top: usize,
    /// Largest such line.
    pub max_top: usize,
    /// Lines of a page.
    pub page: usize,
    /// Largest first line of the help.
    pub help_max: usize,
}

/// Everything a panel reads.
#[derive(Clone, Copy)]
struct Screen<'a> {
    session: &'a Session,
    app: &'a App,
    theme: &'a Theme,
}

impl Screen<'_> {
    /// The turn on show: that of the selected round, else the newest.
    fn turn(&self) -> Option<&Turn> {
        match self.app.selected {
            Some(at) => self.session.turns().get(at.turn),
            None => self.session.turn(),
        }
    }

    /// A panel's frame.
    fn panel<'b>(&self, title: impl Into<Line<'b>>) -> Block<'b> {
        Block::bordered()
            .border_style(self.theme[Role::PanelBorder])
            .title_style(self.theme[Role::PanelTitle])
            .title(title)
    }
}

/// Draws one frame.
pub fn view(session: &Session, app: &App, theme: &Theme, frame: &mut Frame) -> Seen {
    let screen = Screen { session, app, theme };
    let area = frame.area();
    let mut seen = app.seen;
    frame.buffer_mut().set_style(area, theme[Role::Text]);
    if area.width < MIN_SIZE.0 || area.height < MIN_SIZE.1 {
        screens::too_small(screen, area, frame);
        return seen;
    }
    if screens::is_loading(screen) {
        screens::loading(screen, area, frame);
    } else {
        main(screen, area, frame, &mut seen);
    }
    screens::failure(screen, area, frame);
    if let Some(top) = app.help {
        seen.help_max = help::render(screen, top, area, frame);
    }
    seen
}

fn main(screen: Screen, area: Rect, frame: &mut Frame, seen: &mut Seen) {
    let round_height = match area.height {
        0..22 => 6,
        22..36 => 7,
        _ => 9,
    };
    let prompt_height = prompt::height(screen, area);
    let [status, body, round, prompt, footer] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(round_height),
        Constraint::Length(prompt_height),
        Constraint::Length(1),
    ])
    .areas(area);
    status::render(screen, status, frame);
    self::body(screen, body, frame, seen);
    round::render(screen, round, frame);
    prompt::render(screen, prompt, frame);
    footer::render(screen, footer, frame);
}

fn body(screen: Screen, area: Rect, frame: &mut Frame, seen: &mut Seen) {
    let needed = if screen.app.split { 110 } else { 76 };
    if area.width < needed || area.height < 8 {
        transcripts(screen, area, frame, seen);
        return;
    }
    let width = (u32::from(area.width) * 36 / 100).clamp(30, 70) as u16;
    let [left, right] = Layout::horizontal([Constraint::Min(20), Constraint::Length(width)]).areas(area);
    transcripts(screen, left, frame, seen);
    plots(screen, right, frame);
}

fn transcripts(screen: Screen, area: Rect, frame: &mut Frame, seen: &mut Seen) {
    if !screen.app.split {
        transcript::render(screen, Lane::Speculative, area, frame, seen);
        return;
    }
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
    transcript::render(screen, Lane::Plain, left, frame, &mut seen.clone());
    transcript::render(screen, Lane::Speculative, right, frame, seen);
}

fn plots(screen: Screen, area: Rect, frame: &mut Frame) {
    let positions = positions::height(screen);
    let (speedup, per_round, positions) = match area.height {
        0..16 => (0, 0, positions.min(5)),
        16..22 => (0, 4, positions.min(6)),
        22..32 => (7, 5, positions.min(5)),
        _ => (area.height / 4, area.height / 5, positions.min(area.height / 4)),
    };
    let [a, b, c, d] = Layout::vertical([
        Constraint::Min(5),
        Constraint::Length(speedup),
        Constraint::Length(per_round),
        Constraint::Length(positions),
    ])
    .areas(area);
    speed::render(screen, a, frame);
    speedup::render(screen, b, frame);
    per_round::render(screen, c, frame);
    positions::render(screen, d, frame);
}

/// Role and sign of a fate, for tables.
fn sign(fate: Fate) -> (Role, &'static str) {
    (fate::role(fate), fate::sign(fate))
}

/// Microseconds as milliseconds or seconds.
fn duration(us: u64) -> String {
    match us {
        0..100_000 => format!("{:.1} ms", us as f64 / 1e3),
        100_000..1_000_000 => format!("{:.0} ms", us as f64 / 1e3),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}

/// A quotient, or a dash where nothing was measured.
fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
}
