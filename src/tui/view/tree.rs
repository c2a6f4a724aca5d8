//! A draft tree as a tree: each node under the one that it continues, with q, p and verdict, and the
//! target's own token where the accepted path ends.
//!
//! Invariant: a node is shown once, in the order in which it was drafted; the path that was kept reads
//! from top to bottom.

use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::session::{Round, explain, text};
use crate::tui::theme::Role;
use crate::tui::widgets::cell::fit;
use crate::tui::widgets::flow::wrapped;

use super::screen::Screen;
use super::values::{draft_sign, next_fate, sign};

/// Width of a node with its branch.
const NODE: usize = 30;

/// The tree, and below it the sentence about the chosen node.
pub(super) fn lines(screen: Screen, round: &Round, area: Rect) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    children(screen, round, None, "", &mut lines);
    let focus = screen.app.cell.unwrap_or_else(|| round.deciding_column()).min(round.columns() - 1);
    if let Some(finding) = explain(round, focus) {
        let place = if focus < round.drafts.len() { format!("node {}", focus + 1) } else { "its end".to_owned() };
        lines.extend(wrapped(&format!("{place}: {}", finding.text), area.width, screen.theme[Role::Text]));
    }
    lines
}

/// The nodes that continue `parent` (none is the anchor), each followed by its own.
fn children(screen: Screen, round: &Round, parent: Option<usize>, before: &str, lines: &mut Vec<Line<'static>>) {
    let all: Vec<usize> = (0..round.drafts.len()).filter(|index| round.parent(*index) == parent).collect();
    let ends_here = round.verdict.is_some() && round.path().last() == parent;
    for (place, index) in all.iter().enumerate() {
        let is_last = place + 1 == all.len() && !ends_here;
        lines.push(node(screen, round, *index, &format!("{before}{}", if is_last { "└─" } else { "├─" })));
        let bar = if is_last { "  " } else { "│ " };
        children(screen, round, Some(*index), &format!("{before}{bar}"), lines);
    }
    if ends_here {
        lines.push(end(screen, round, &format!("{before}└─")));
    }
}

fn node(screen: Screen, round: &Round, index: usize, branch: &str) -> Line<'static> {
    let cell = &round.drafts[index];
    let (role, mark) = draft_sign(round, index);
    let p = round.judgement(index).map(|judgement| judgement.p);
    let numbers = format!("q {} p {}", shown(cell.q), shown(p));
    let name = format!("{mark} {} {}", index + 1, text::inline(&cell.piece));
    line(screen, (branch, &name, role), &numbers, screen.app.cell == Some(index))
}

/// The target's own token behind the accepted path.
fn end(screen: Screen, round: &Round, branch: &str) -> Line<'static> {
    let (role, mark) = sign(next_fate(round));
    let piece = round.next_piece().unwrap_or_default();
    let p = round.prediction(round.drafts.len()).and_then(|row| row.find(piece.id)).map(|found| found.1);
    let name = format!("{mark} {}", text::inline(&piece));
    let chosen = screen.app.cell == Some(round.drafts.len());
    line(screen, (branch, &name, role), &format!("       p {}  the target's own", shown(p)), chosen)
}

fn line(screen: Screen, (branch, name, role): (&str, &str, Role), numbers: &str, chosen: bool) -> Line<'static> {
    let room = NODE.saturating_sub(branch.chars().count());
    let line = Line::from(vec![
        Span::styled(format!(" {branch}"), screen.theme[Role::TextDim]),
        Span::styled(fit(name, room), screen.theme[role]),
        Span::styled(format!(" {numbers}"), screen.theme[Role::Text]),
    ]);
    if chosen { line.patch_style(screen.theme[Role::Selected]) } else { line }
}

fn shown(value: Option<f32>) -> String {
    value.map_or("–   ".to_owned(), |value| format!("{value:.2}"))
}
