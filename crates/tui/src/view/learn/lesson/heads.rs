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
    let width = CHAIN.iter().chain(&HEADS).map(|line| line.width()).max().unwrap_or(0) as u16;
    let drawn = |lines: [&'static str; 5]| {
        let last = lines.len() - 1;
        let role = |index| match index {
            0 => Role::PanelTitle,
            index if index == last => Role::TextStrong,
            _ => Role::Text,
        };
        let lines = lines.into_iter().enumerate().map(|(index, line)| Line::styled(line, screen.theme[role(index)]));
        lines.collect::<Vec<_>>()
    };
    let is_wide = inner.width > 2 * width;
    let [first, second] = if is_wide {
        Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(inner)
    } else {
        let gap = u16::from(inner.height > 10);
        Layout::vertical([Constraint::Length(5 + gap), Constraint::Min(0)]).areas(inner)
    };
    put(drawn(CHAIN), first, frame);
    put(drawn(HEADS), second, frame);
}
