//! The Speed page: which panels it has at which size.
//!
//! Invariant: the figure, its plot and what limits it stay at every size. Where rows are short, the memory goes first,
//! then calibration, context, acceptance by position, the curve of acceptance, and last the speedup against k.

use crate::app::place::page::Pane;

use crate::view::prelude::*;
use crate::view::speed::hero::{PLOT, hero_height};
use crate::view::speed::{
    accepted, calibration, context, costs, hero, memory, per_round, positions, speed_summary, speedup, worths,
};

/// Least height of the times of rounds, and of the costs of passes.
const TIMES: u16 = 4;

/// Height of the memory's panel at which little of it is cut.
const MEMORY: u16 = 12;

/// Where the panes are.
pub(in crate::view) fn panes(screen: Screen, area: Rect) -> [(Pane, Rect); 6] {
    let [body, account] = Layout::vertical([Constraint::Min(5), Constraint::Length(speed_summary::HEIGHT)]).areas(area);
    let [left, right] = Layout::horizontal([Constraint::Percentage(52), Constraint::Min(30)]).areas(body);
    let below = acceptance_height(screen, left);
    let [curves, positions] = Layout::vertical([Constraint::Min(5), Constraint::Length(below)]).areas(left);
    let worths = if worths::is_known(screen) { worths::LEAST } else { 0 };
    // whole, where its longest rows may be cut, else its two most important lines, else not at all
    let room = body.height.saturating_sub(2 * TIMES + worths);
    let whole = match body.height {
        0..20 => memory::SHORT,
        _ if worths == 0 || room >= MEMORY => memory::height(screen, right.width, room),
        _ => memory::height(screen, right.width, u16::MAX),
    };
    let memory = [whole, memory::SHORT].into_iter().find(|height| *height <= room).unwrap_or(0);
    let [costs, times, memory] =
        Layout::vertical([Constraint::Fill(3), Constraint::Fill(2), Constraint::Length(memory)]).areas(right);
    [
        (Pane::Curves, curves),
        (Pane::Positions, positions),
        (Pane::Costs, costs),
        (Pane::Times, times),
        (Pane::Memory, memory),
        (Pane::Account, account),
    ]
}

/// Takes rows of a panel one part after the other, each as many as it wants, or none if fewer than its least are left.
struct Rows(u16);

impl Rows {
    fn take(&mut self, wanted: u16, least: u16) -> u16 {
        let height = if self.0 < least { 0 } else { wanted.min(self.0) };
        self.0 -= height;
        height
    }
}

/// The figure, and the speedup and acceptance over the answer.
pub(in crate::view) fn curves(screen: Screen, area: Rect, frame: &mut Frame) {
    let hero = hero_height(screen, area);
    let mut rows = Rows(area.height.saturating_sub(hero + PLOT));
    let has_curve = speedup::is_known(screen) && accepted::is_known(screen);
    let accepted = if has_curve { rows.take(accepted::HEIGHT, accepted::HEIGHT) } else { 0 };
    let [hero, speedup, accepted] =
        Layout::vertical([Constraint::Length(hero), Constraint::Min(0), Constraint::Length(accepted)]).areas(area);
    hero::render(screen, hero, frame);
    speedup::render(screen, speedup, frame);
    accepted::render(screen, accepted, frame);
}

/// Height of what is known about acceptance, at most so much that the figure and its plot have room above it.
fn acceptance_height(screen: Screen, area: Rect) -> u16 {
    let wanted = positions::height(screen) + context_height(screen, area.width) + calibration_height(screen);
    let room = area.height.saturating_sub(hero_height(screen, area) + PLOT);
    wanted.clamp(area.height * 35 / 100, room.max(area.height * 35 / 100))
}

fn context_height(screen: Screen, width: u16) -> u16 {
    if context::is_known(screen, width) { context::HEIGHT } else { 0 }
}

fn calibration_height(screen: Screen) -> u16 {
    if calibration::is_known(screen) { calibration::HEIGHT } else { 0 }
}

/// Acceptance by position, by context and by q; how many drafts rounds accepted where rows are left.
pub(in crate::view) fn acceptance(screen: Screen, area: Rect, frame: &mut Frame) {
    let mut rows = Rows(area.height);
    let positions = rows.take(positions::height(screen), 3);
    let context = match context_height(screen, area.width) {
        0 => 0,
        height => rows.take(height, context::LEAST),
    };
    let calibration = match calibration_height(screen) {
        0 => 0,
        height => rows.take(height, height),
    };
    let [a, b, c, d] = Layout::vertical([
        Constraint::Length(positions),
        Constraint::Length(calibration),
        Constraint::Length(context),
        Constraint::Min(0),
    ])
    .areas(area);
    positions::render(screen, a, frame);
    calibration::render(screen, b, frame);
    context::render(screen, c, frame);
    if d.height >= 3 {
        per_round::histogram(screen, d, frame);
    }
}

/// The speedup against k, and what passes cost.
pub(in crate::view) fn costs(screen: Screen, area: Rect, frame: &mut Frame) {
    let most = area.height.saturating_sub(TIMES);
    let worths = if worths::is_known(screen) && most >= worths::LEAST {
        most.min(area.height * 2 / 3).max(worths::LEAST)
    } else {
        0
    };
    let [above, below] = Layout::vertical([Constraint::Length(worths), Constraint::Min(0)]).areas(area);
    worths::render(screen, above, frame);
    costs::render(screen, below, frame);
}
