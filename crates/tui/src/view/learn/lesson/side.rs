//! The panels beside the words of a step: how high each has to be, which fit, and all of them over the whole page.
//!
//! Invariant: nothing is cut unseen. Where a panel is cut, is left out, or is a window on a longer text, a line below the
//! panels names the key that shows them over the whole page, where every panel is shown in full, one after the other.

use super::shown::{panels, what_runs};
use super::{bytes, heads, histogram, map, pass, residual, saving, sliders, slots, threads, training, wiring};
use crate::view::prelude::*;
use crate::view::rounds::{loop_lines, round};
use crate::view::speed::{costs, memory};
use draftscope_learn::lesson::Panel;

/// A panel beside the words; none stands for a run that has not begun.
pub(in crate::view) type Side = (Option<Panel>, Rect);

/// Rows of a picture for a window on a text, and of the plot of the dial.
const PICTURED: u16 = 14;
const PLOT: u16 = 11;

/// Least height, with the frame.
pub(super) const fn least(panel: Option<Panel>) -> u16 {
    match panel {
        Some(Panel::Memory) => 4,
        None | Some(Panel::Answer | Panel::Costs) => 5,
        Some(Panel::Round) => 6,
        Some(Panel::Loop) => loop_lines::HEIGHT,
        Some(Panel::Lanes | Panel::Pass | Panel::Bytes | Panel::Residual) => 7,
        Some(Panel::Distributions | Panel::Slots) => 8,
        Some(Panel::Dial | Panel::Wiring | Panel::Heads | Panel::Saving | Panel::Training | Panel::Sliders) => 9,
        Some(Panel::Threads | Panel::Histogram) => 10,
        Some(Panel::Map) => 11,
    }
}

/// Height that shows all of a panel, with its frame; none for a window on a text, which shows as much as it gets.
fn needed(screen: Screen, panel: Option<Panel>, width: u16) -> Option<u16> {
    let inner = width.saturating_sub(2);
    let lines = match panel {
        Some(Panel::Answer | Panel::Lanes | Panel::Distributions) => return None,
        Some(Panel::Round) => return Some(round::height(screen, width)),
        Some(Panel::Loop) => return Some(loop_lines::HEIGHT),
        Some(Panel::Costs) => return Some(costs::height(screen, width)),
        Some(Panel::Dial) => return Some(PLOT),
        Some(Panel::Memory) => return Some(memory::height(screen, width, u16::MAX)),
        None => what_runs(screen, inner),
        Some(Panel::Pass) => pass::content(screen, inner),
        Some(Panel::Bytes) => bytes::content(screen, inner),
        Some(Panel::Threads) => threads::content(screen, inner),
        Some(Panel::Slots) => slots::content(screen, inner),
        Some(Panel::Residual) => residual::content(screen, inner),
        Some(Panel::Histogram) => histogram::content(screen, inner),
        Some(Panel::Map) => map::content(screen, inner),
        Some(Panel::Wiring) => wiring::content(screen, inner),
        Some(Panel::Heads) => heads::content(screen, inner),
        Some(Panel::Saving) => saving::content(screen, inner),
        Some(Panel::Training) => training::content(screen, inner),
        Some(Panel::Sliders) => sliders::content(screen, inner),
    };
    Some(lines.len() as u16 + FRAME)
}

/// Height that a panel takes where there is room: u16::MAX takes what is left.
pub(super) fn wanted(screen: Screen, panel: Option<Panel>, width: u16) -> u16 {
    match panel {
        Some(Panel::Round) if screen.app.place.presents => u16::MAX,
        Some(Panel::Wiring) if width >= wiring::WIDTH + 2 => wiring::WANTED,
        _ => needed(screen, panel, width).unwrap_or(u16::MAX),
    }
}

/// Panels from top to bottom: those that fit with their least height, the first ones first; what is left goes to the first that
/// wants more. The line below them, where one of them is cut, left out or a window.
pub(super) fn stacked(screen: Screen, panels: &[Option<Panel>], area: Rect) -> (Vec<Side>, Option<Rect>) {
    let placed = place(screen, panels, area);
    let is_whole = |(panel, area): &Side| needed(screen, *panel, area.width).is_some_and(|rows| rows <= area.height);
    if screen.app.place.presents || (placed.len() == panels.len() && placed.iter().all(is_whole)) {
        return (placed, None);
    }
    let above = Rect { height: area.height.saturating_sub(1), ..area };
    (place(screen, panels, above), Some(Rect { y: above.bottom(), height: area.height.min(1), ..area }))
}

fn place(screen: Screen, panels: &[Option<Panel>], area: Rect) -> Vec<Side> {
    let mut left = area.height;
    let mut heights = Vec::new();
    for panel in panels {
        let least = needed(screen, *panel, area.width).map_or(least(*panel), |needed| needed.min(least(*panel)));
        if least > left && !heights.is_empty() {
            break;
        }
        heights.push(least.min(left));
        left -= least.min(left);
    }
    for (panel, height) in panels.iter().zip(&mut heights) {
        let more = wanted(screen, *panel, area.width).saturating_sub(*height).min(left);
        *height += more;
        left -= more;
    }
    if let Some(last) = heights.last_mut() {
        *last += left;
    }
    let mut y = area.y;
    let placed = |(panel, height): (&Option<Panel>, u16)| {
        let placed = Rect { y, height, ..area };
        y += height;
        (*panel, placed)
    };
    panels.iter().zip(heights).map(placed).collect()
}

/// The line below panels that are cut: the key that shows all of them.
pub(in crate::view) fn more(screen: Screen, area: Rect, frame: &mut Frame) {
    let keys = screen.keys(Context::Browse, &[(&[Action::Zoom], "shows all of these panels")]);
    put(vec![Line::styled(format!(" {keys} "), screen.theme[Role::Key]).right_aligned()], area, frame);
}

/// The panels of a zoomed step over the whole page, from the chosen one on as many as fit in full; with the keys that lead to
/// the others. None where the step has no panel.
pub(in crate::view) fn zoomed(screen: Screen, area: Rect) -> Option<(Vec<Side>, Rect, Line<'static>)> {
    let all = panels(screen);
    let first = screen.app.learning.study.panel.min(all.len().checked_sub(1)?);
    let above = Rect { height: area.height.saturating_sub(1), ..area };
    let mut used = 0;
    let fits = |panel: &&Option<Panel>| {
        used += needed(screen, **panel, area.width).unwrap_or(least(**panel).max(PICTURED));
        used <= above.height
    };
    let count = all[first..].iter().take_while(fits).count().max(1);
    let shown = &all[first..first + count];
    let mut keys: Vec<(&[Action], &str)> = vec![(&[Action::Zoom], "the words")];
    if shown.iter().any(|panel| matches!(panel, Some(Panel::Answer | Panel::Lanes))) {
        keys.push((CHOOSE, "scroll the text"));
    }
    let mut said = format!(" {} ", screen.keys(Context::Browse, &keys));
    if count < all.len() {
        let turn = screen.keys(Context::Browse, &[(&[Action::PageUp, Action::PageDown], "other panels")]);
        said = format!(" {turn} ({} to {} of {}) ·{said}", first + 1, first + count, all.len());
    }
    let keys = Line::styled(said, screen.theme[Role::Key]).right_aligned();
    Some((place(screen, shown, above), Rect { y: above.bottom(), height: 1, ..area }, keys))
}

/// The panels that a picture of the step shows: not sliders, which a picture cannot move.
fn for_picture(screen: Screen) -> Vec<Option<Panel>> {
    let mut panels = panels(screen);
    panels.retain(|panel| panel.is_some_and(|panel| panel != Panel::Sliders));
    panels
}

/// Rows that show all of them in so many columns.
pub(in crate::view) fn picture_rows(screen: Screen, columns: u16) -> u16 {
    let rows = |panel| match wanted(screen, panel, columns) {
        u16::MAX => PICTURED,
        rows => rows,
    };
    for_picture(screen).into_iter().map(rows).sum()
}

/// Their places.
pub(in crate::view) fn pictured(screen: Screen, area: Rect) -> Vec<Side> {
    place(screen, &for_picture(screen), area)
}
