//! A draft tree as a tree: each node under the one that it continues, with q, p and verdict, and the target's own token
//! where the accepted path ends.
//!
//! Invariant: a node is shown once, in the order of drafting; the kept path reads from top to bottom.

use draftscope_protocol::NodeWorth;
use draftscope_session::explain;

use crate::view::prelude::*;
use crate::view::values::{draft_sign, next_sign, short};

/// Width of a node with its branch, at most, and of the numbers after it.
const NODE: usize = 30;
const NUMBERS: usize = 15;

/// Index among the spans of a line of what is left out if it does not fit.
const NOTE: usize = 4;

/// Height of the panel with the tree of the shown round beside the answer; 0 if that round has none.
pub(in crate::view) fn height(screen: Screen) -> u16 {
    let round = screen.app.round(screen.session).filter(|round| round.is_tree());
    round.map_or(0, |round| u16::try_from(round.drafts.len()).unwrap_or(u16::MAX).saturating_add(1 + FRAME))
}

/// The tree of the round on show, in a panel.
pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let Some(round) = screen.app.round(screen.session).filter(|_| !area.is_empty()) else {
        return;
    };
    let inner = framed(screen.panel(format!(" Tree of round {} ", round.number())), area, frame);
    let mut lines = nodes(screen, round, inner.width);
    lines.iter_mut().filter(|line| line.width() > inner.width.into()).for_each(|line| line.spans.truncate(NOTE));
    put(lines, inner, frame);
}

/// The nodes, a line each.
fn nodes(screen: Screen, round: &Round, width: u16) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let room = usize::from(width).saturating_sub(NUMBERS + 1).min(NODE);
    children(screen, round, None, ("", room), &mut lines);
    lines
}

/// The tree, and below it the sentence about the chosen node.
pub(in crate::view) fn lines(screen: Screen, round: &Round, area: Rect) -> Vec<Line<'static>> {
    let mut lines = nodes(screen, round, area.width);
    let focus = screen.app.place.cell.unwrap_or_else(|| round.deciding_column()).min(round.columns() - 1);
    if let Some(finding) = explain(round, focus) {
        let place = if focus < round.drafts.len() { format!("node {}", focus + 1) } else { "its end".to_owned() };
        lines.extend(wrapped(&format!("{place}: {}", finding.text), area.width, screen.theme[Role::Text]));
    }
    lines
}

/// The nodes that continue `parent` (`None` is the anchor), each followed by its own.
fn children(
    screen: Screen,
    round: &Round,
    parent: Option<usize>,
    (before, room): (&str, usize),
    lines: &mut Vec<Line<'static>>,
) {
    let all: Vec<usize> = (0..round.drafts.len()).filter(|index| round.parent(*index) == parent).collect();
    let ends_here = round.verdict.is_some() && round.path().last() == parent;
    for (place, index) in all.iter().enumerate() {
        let is_last = place + 1 == all.len() && !ends_here;
        lines.push(node(screen, round, *index, (&format!("{before}{}", if is_last { "└─" } else { "├─" }), room)));
        let bar = if is_last { "  " } else { "│ " };
        children(screen, round, Some(*index), (&format!("{before}{bar}"), room), lines);
    }
    if ends_here {
        lines.push(end(screen, round, (&format!("{before}└─"), room)));
    }
}

fn node(screen: Screen, round: &Round, index: usize, branch: (&str, usize)) -> Line<'static> {
    let cell = &round.drafts[index];
    let (role, mark) = draft_sign(round, index);
    let p = round.judgement(index).and_then(|judgement| judgement.p);
    let numbers = format!("q {} p {}", shown(cell.q), shown(p));
    let before = format!("{mark} {} ", index + 1);
    let worth = round.worth(index).map_or(String::new(), worth);
    let name = text::inline(&cell.token);
    line(screen, (branch, [&before, &name], role), [&numbers, &worth], screen.app.place.cell == Some(index))
}

/// Why an alternative was drafted, in tokens.
fn worth(worth: &NodeWorth) -> String {
    format!("  promised {} for {} of a token", short(worth.gain), short(worth.cost))
}

/// The target's own token after the accepted path.
fn end(screen: Screen, round: &Round, branch: (&str, usize)) -> Line<'static> {
    let (role, mark) = next_sign(round);
    let piece = round.next_piece().unwrap_or_default();
    let p = round.prediction(round.drafts.len()).and_then(|row| row.find(piece.id)).map(|found| found.1);
    let before = format!("{mark} ");
    let chosen = screen.app.place.cell == Some(round.drafts.len());
    line(
        screen,
        (branch, [&before, &text::inline(&piece)], role),
        [&format!("       p {}", shown(p)), "  the target's own"],
        chosen,
    )
}

fn line(
    screen: Screen,
    ((branch, room), [before, name], role): ((&str, usize), [&str; 2], Role),
    [numbers, note]: [&str; 2],
    chosen: bool,
) -> Line<'static> {
    let room = room.saturating_sub(branch.chars().count() + before.width());
    let (style, name) = (screen.theme[role], cut(name, room));
    let padding = " ".repeat(room.saturating_sub(name.width()));
    let line = Line::from(vec![
        Span::styled(format!(" {branch}"), screen.theme[Role::TextDim]),
        Span::styled(before.to_owned(), undecorated(style)),
        Span::styled(name, style),
        Span::styled(format!("{padding} {numbers}"), screen.theme[Role::Text]),
        Span::styled(note.to_owned(), screen.theme[Role::Text]),
    ]);
    if chosen { line.patch_style(screen.theme[Role::Selected]) } else { line }
}

fn shown(value: Option<f32>) -> String {
    value.map_or("–   ".to_owned(), |value| format!("{value:.2}"))
}
