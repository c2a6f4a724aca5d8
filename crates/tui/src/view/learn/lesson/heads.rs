//! Drawing: a chain of drafts, each made from the one before, against parallel heads that all read one hidden state.

use crate::view::prelude::*;

/// A chain: the module runs once for each draft.
const CHAIN: [&str; 5] = [
    "A chain (MTP, EAGLE): the module runs k times",
    " h, anchor ─► module ─► draft 1",
    "                 │         │",
    "        its output, draft 1 ─► module ─► draft 2",
    " Draft 2 is made knowing draft 1.",
];

/// Parallel heads: one step for all drafts.
const HEADS: [&str; 5] = [
    "Parallel heads (Medusa): one step for all drafts",
    " h ─┬─► head 1 ─► draft 1",
    "    ├─► head 2 ─► draft 2",
    "    └─► head 3 ─► draft 3",
    " Draft 2 is made without knowing draft 1.",
];

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let inner = framed(screen.panel(" How the second draft is made "), area, frame);
    put(content(screen, inner.width), inner, frame);
}

/// All lines in so many columns: both drawings beside each other where they fit.
pub(super) fn content(screen: Screen, width: u16) -> Vec<Line<'static>> {
    let widest = CHAIN.iter().chain(&HEADS).map(|line| line.width()).max().unwrap_or(0);
    let style = |index| match index {
        0 => screen.theme[Role::PanelTitle],
        index if index + 1 == CHAIN.len() => screen.theme[Role::TextStrong],
        _ => screen.theme[Role::Text],
    };
    let drawn = |drawing: [&'static str; 5]| drawing.into_iter().enumerate().map(move |(i, line)| (line, style(i)));
    let line = |(line, style): (&'static str, Style)| Line::styled(line, style);
    if usize::from(width) <= 2 * widest {
        return drawn(CHAIN).map(line).chain([Line::default()]).chain(drawn(HEADS).map(line)).collect();
    }
    let half = usize::from(width) / 2;
    let both = drawn(CHAIN).zip(drawn(HEADS));
    both.map(|((left, style), (right, _))| Line::styled(format!("{}{right}", fit(left, half)), style)).collect()
}
