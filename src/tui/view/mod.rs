//! The screen: which panel stands where at which size.
//!
//! ```text
//!   status ────────────────────────────────
//!   tabs ──────────────────────────────────   (22 lines and more)
//!   the page: its panes, or the zoomed one
//!   time ──────────────────────────────────   (in the past, and where a recording plays)
//!   footer ────────────────────────────────
//! ```
//!
//! Invariant: drawing changes nothing; what a frame measured (how far one can scroll, what is under
//! the mouse) goes back to the caller as a [`HitMap`]. Any size from 1×1 up draws without panic. One file
//! per panel; `pages.rs` says where each stands.

mod account;
mod agreement;
mod ask;
mod costs;
mod diff;
mod distributions;
mod exports;
mod footer;
mod help;
mod ladder;
mod lay;
mod lesson;
mod memory;
mod numbers;
mod pages;
mod palette;
mod per_round;
mod player;
mod positions;
mod prompt;
mod round;
mod screens;
mod search;
mod settings;
mod speed;
mod speedup;
mod status;
mod table;
mod tabs;
mod time;
mod times;
mod transcript;
mod tree;
mod versus;
mod what_if;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::Block;

use crate::protocol::Lane;
use crate::session::{Fate, Session, Timeline, Turn};

use super::action::Action;
use super::app::{App, Overlay};
use super::fate;
use super::hit_map::HitMap;
use super::keymap::Context;
use super::page::{Page, Pane};
use super::plain_glyphs;
use super::theme::{Role, Theme};
use crate::tui::widgets::cell::cut;

pub(super) use diff::render as diff;
pub(super) use lay::Cache;

/// Below this the screen only says that it is too small.
const MIN_SIZE: (u16, u16) = (60, 16);

/// Everything a panel reads.
#[derive(Clone, Copy)]
struct Screen<'a> {
    time: &'a Timeline,
    /// What is on show, the past or the present.
    session: &'a Session,
    app: &'a App,
    theme: &'a Theme,
}

impl<'a> Screen<'a> {
    /// The turn on show: that of the selected round, else the newest.
    fn turn(&self) -> Option<&'a Turn> {
        let selected = self.app.selected.and_then(|at| self.session.turns().get(at.turn));
        selected.or_else(|| self.session.turn())
    }

    /// The lane that stands beside the run's own: the rival where one races, else the plain one.
    fn beside(&self) -> Lane {
        let wrote = |lane: Lane| self.turn().is_some_and(|turn| !turn.answer(lane).tokens.is_empty());
        let races = wrote(Lane::Rival) || (!wrote(Lane::Plain) && self.session.settings().rival.is_some());
        if races { Lane::Rival } else { Lane::Plain }
    }

    /// What keys do in a context, by the first key that the keymap has for each: "↑↓ choose · Esc closes".
    fn keys(&self, context: Context, hints: &[(&[Action], &str)]) -> String {
        let hint = |(actions, does): &(&[Action], &str)| {
            let labels: Vec<_> = actions.iter().map(|action| self.app.keymap.label(context, *action)).collect();
            let are_signs = labels.iter().all(|label| label.chars().count() == 1);
            format!("{} {does}", labels.join(if are_signs { "" } else { " " }))
        };
        hints.iter().map(hint).collect::<Vec<_>>().join(" · ")
    }

    /// A panel's frame.
    fn panel<'b>(&self, title: impl Into<Line<'b>>) -> Block<'b> {
        Block::bordered()
            .border_style(self.theme[Role::PanelBorder])
            .title_style(self.theme[Role::PanelTitle])
            .title(title)
    }
}

const CHOOSE: &[Action] = &[Action::Up, Action::Down];
const CHANGE: &[Action] = &[Action::Left, Action::Right];
const LEAVE: &[Action] = &[Action::Leave];

/// For the bottom of a panel that has no room for all of its lines: how many are left out.
fn left_out(screen: Screen, lines: usize, area: Rect) -> Line<'static> {
    let over = lines.saturating_sub(area.height.saturating_sub(2).into());
    let text = format!(" … {over} more: {} shows all ", screen.app.key(Action::Zoom));
    let text = if over > 0 { cut(&text, area.width.saturating_sub(2).into()) } else { String::new() };
    Line::styled(text, screen.theme[Role::TextDim])
}

/// The bottom of a panel of choices.
fn keys_of_choices(screen: Screen) -> Line<'static> {
    let keys = screen.keys(Context::Panel, &[(CHOOSE, "choose"), (CHANGE, "change"), (LEAVE, "closes")]);
    Line::styled(format!(" {keys} "), screen.theme[Role::TextDim])
}

/// Draws one frame.
pub fn view(time: &Timeline, app: &App, theme: &Theme, frame: &mut Frame) -> HitMap {
    let screen = Screen { time, session: time.shown(), app, theme };
    let area = frame.area();
    let mut hit_map = HitMap { hits: Vec::new(), ..app.hit_map };
    frame.buffer_mut().set_style(area, theme[Role::Text]);
    if area.width < MIN_SIZE.0 || area.height < MIN_SIZE.1 {
        screens::too_small(screen, area, frame);
    } else if screens::is_loading(screen) {
        screens::loading(screen, area, frame);
    } else {
        main(screen, area, frame, &mut hit_map);
    }
    if area.width >= MIN_SIZE.0 && area.height >= MIN_SIZE.1 {
        screens::failure(screen, area, frame);
        overlay(screen, area, frame, &mut hit_map);
    }
    if app.options.ascii {
        plain_glyphs::replace(frame.buffer_mut());
    }
    hit_map
}

fn main(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) {
    let [status, tabs, body, time, footer] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(u16::from(area.height >= 22)),
        Constraint::Min(3),
        Constraint::Length(u16::from(screen.time.is_past() || screen.app.is_recording)),
        Constraint::Length(1),
    ])
    .areas(area);
    status::render(screen, status, frame);
    tabs::render(screen, tabs, frame, hit_map);
    pages::render(screen, body, frame, hit_map);
    if screen.app.is_recording {
        player::render(screen, time, frame, hit_map);
    } else {
        time::render(screen, time, frame, hit_map);
    }
    footer::render(screen, footer, frame);
}

fn overlay(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) {
    match &screen.app.overlay {
        None => {}
        Some(Overlay::Help(top)) => hit_map.help_max = help::render(screen, *top, area, frame),
        Some(Overlay::Palette(entry)) => palette::render(screen, entry, area, frame),
        Some(Overlay::Search(entry)) => search::render(screen, entry, area, frame),
        Some(Overlay::Note(entry, place)) => ask::note(screen, entry, *place, area, frame),
        Some(Overlay::GoTo(entry)) => ask::place(screen, entry, area, frame),
        Some(Overlay::Settings(row)) => settings::render(screen, *row, area, frame),
        Some(Overlay::Versus(row)) => versus::render(screen, *row, area, frame),
        Some(Overlay::Export(row)) => exports::render(screen, *row, area, frame),
        Some(Overlay::WhatIf(wishes)) => what_if::render(screen, wishes, area, frame),
    }
}

/// Signs of the marks of a round or a prompt's pass, each once.
fn marked(screen: Screen, round: &crate::session::Round) -> String {
    let marks = screen.time.live().marks();
    let place = Some(crate::session::Place::of(round));
    let has = |is_bookmark| marks.iter().any(|m| m.place == place && m.is_bookmark == is_bookmark);
    [(true, '★'), (false, '✎')].into_iter().filter(|(kind, _)| has(*kind)).map(|(_, sign)| sign).collect()
}

/// Role and sign of a fate, for tables.
fn sign(fate: Fate) -> (Role, &'static str) {
    (fate::role(fate), fate::sign(fate))
}

/// Position in the context of a column of a round; in a tree those of one depth share it.
fn position(round: &crate::session::Round, column: usize) -> u64 {
    let depth = match round.drafts.get(column) {
        None if round.is_tree() => round.accepted(),
        _ => round.depth(column),
    };
    u64::from(round.base_len) + 1 + depth as u64
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
