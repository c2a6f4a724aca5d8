//! The ladder: one row per round, a cell per position: the draft with q above, the target's own token
//! with p below, also where a draft was not reached; the token that was added; and a bar of the times.
//!
//! Invariant: only rows in view are laid out. A row shows what its round's events told, no more; the
//! selected round, or the live one, is always in view.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use crate::session::{Round, text};
use crate::tui::action::Action;
use crate::tui::filter::Filter;
use crate::tui::hit_map::{HitMap, Target};
use crate::tui::selection::{RoundAt, round_at, rounds};
use crate::tui::theme::Role;
use crate::tui::widgets::cell::fit;
use crate::tui::widgets::flow::wrapped;

use super::round;
use super::screen::{Screen, marked};
use super::values::draft_sign;

/// Width of the round's number and verdict.
const LABEL: usize = 9;

/// Width of the times at the right edge.
const TIMES: usize = 12;

/// Lines of a row.
const ROW: usize = 2;

/// Columns in view and their width.
struct Grid {
    first: usize,
    count: usize,
    width: usize,
    times: usize,
}

impl Grid {
    /// Columns for the widest of the rounds in view, round the chosen one.
    fn of(screen: Screen, shown: &[RoundAt], width: u16) -> Self {
        let columns = |at: &RoundAt| round_at(screen.session, *at).map_or(1, Round::columns);
        let most = shown.iter().map(columns).max().unwrap_or(1).max(1);
        let times = if width >= 76 { TIMES } else { 0 };
        let room = usize::from(width).saturating_sub(LABEL + times).max(1);
        let width = (room / most).clamp(12, 20);
        let count = (room / width).clamp(1, most);
        let focus = screen.app.cell.unwrap_or(0).min(most - 1);
        Self { first: (focus + 1).saturating_sub(count).min(most - count), count, width, times }
    }

    fn range(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.count
    }
}

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) {
    let all: Vec<RoundAt> = fitting(screen);
    let title = format!(" Rounds: {} of {} · {} ", all.len(), count(screen), screen.app.filter.name());
    let block = screen.panel(title).title_bottom(caption(screen, area.width));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    if inner.is_empty() {
        return;
    }
    if all.is_empty() {
        let text = if count(screen) == 0 {
            "No round yet. Send a prompt in Chat: each round becomes a row here.".to_owned()
        } else {
            format!("No round fits the filter; {} takes the next one.", screen.app.key(Action::NextFilter))
        };
        frame.render_widget(Paragraph::new(wrapped(&text, inner.width, screen.theme[Role::TextDim])), inner);
        return;
    }
    let rows = (usize::from(inner.height) / ROW).max(1);
    hit_map.page = rows;
    let shown = in_view(screen, &all, rows);
    let grid = Grid::of(screen, shown, inner.width);
    let mut lines = Vec::new();
    for (place, at) in shown.iter().enumerate() {
        mark(
            &grid,
            *at,
            Rect { y: inner.y + (place * ROW) as u16, height: ROW as u16, ..inner }.intersection(inner),
            hit_map,
        );
        if let Some(round) = round_at(screen.session, *at) {
            lines.extend(row(screen, &grid, *at, round));
        }
    }
    frame.render_widget(Paragraph::new(lines), inner);
}

fn count(screen: Screen) -> usize {
    rounds(screen.session).count()
}

fn fitting(screen: Screen) -> Vec<RoundAt> {
    let fits = |at: &RoundAt| screen.app.filter == Filter::All || screen.app.filter.fits_at(screen.session, *at);
    rounds(screen.session).filter(fits).collect()
}

/// The rows round the selected one; the newest ones when none is.
fn in_view<'a>(screen: Screen, all: &'a [RoundAt], rows: usize) -> &'a [RoundAt] {
    let last_top = all.len().saturating_sub(rows);
    let top = match screen.app.selected {
        None => last_top,
        Some(at) => all.partition_point(|other| *other < at).saturating_sub(rows / 2).min(last_top),
    };
    &all[top..(top + rows).min(all.len())]
}

fn mark(grid: &Grid, at: RoundAt, row: Rect, hit_map: &mut HitMap) {
    hit_map.hit(row, Target::Round { at, column: None });
    for (place, column) in grid.range().enumerate() {
        let x = row.x + (LABEL + place * grid.width) as u16;
        let cell = Rect { x, width: grid.width as u16, ..row }.intersection(row);
        hit_map.hit(cell, Target::Round { at, column: Some(column) });
    }
}

fn caption(screen: Screen, width: u16) -> Line<'static> {
    let is_tree = screen.app.round(screen.session).is_some_and(Round::is_tree);
    let text = if is_tree {
        " above: drafts, ↳ the one that each continues · below: target's own with p "
    } else if width >= 110 {
        " above: draft with q · below: the target's own token with p · the last column: what the target says next "
    } else {
        " above: draft with q · below: target's own with p "
    };
    Line::styled(text, screen.theme[Role::TextDim])
}

fn row(screen: Screen, grid: &Grid, at: RoundAt, round: &Round) -> [Line<'static>; 2] {
    let is_here = screen.app.round_index(screen.session) == Some(at);
    let chosen = |column: usize, style: Style| {
        let is_cell = is_here && screen.app.cell == Some(column);
        if is_cell { style.patch(screen.theme[Role::Selected]) } else { style }
    };
    let marker = if is_here { "▸" } else { " " };
    let accepted = if round.verdict.is_some() {
        format!("  {}/{} ✓", round.accepted(), round.drafts.len())
    } else {
        "  …".to_owned()
    };
    let label = if is_here { Role::TextStrong } else { Role::TextDim };
    let mut above = vec![Span::styled(
        fit(&format!("{marker}#{}{}", round.round, marked(screen, round)), LABEL),
        screen.theme[label],
    )];
    let mut below = vec![Span::styled(fit(&accepted, LABEL), screen.theme[Role::TextDim])];
    for column in grid.range() {
        let (text, style) = draft(screen, round, column, grid.width);
        above.push(Span::styled(fit(&text, grid.width - 1), chosen(column, style)));
        above.push(Span::raw(" "));
        let (text, style) = target(screen, round, column, grid.width);
        below.push(Span::styled(fit(&text, grid.width - 1), chosen(column, style)));
        below.push(Span::raw(" "));
    }
    if grid.times > 0 {
        above.push(times(screen, round));
        below.push(Span::styled(took(round), screen.theme[Role::TextDim]));
    }
    [Line::from(above), Line::from(below)]
}

/// A draft with the mark of its verdict.
fn draft(screen: Screen, round: &Round, column: usize, width: usize) -> (String, Style) {
    if column >= round.columns() {
        return (String::new(), Style::new());
    }
    match round.drafts.get(column) {
        Some(cell) if round.is_tree() => {
            // its place in the tree matters more here than q, which the round's own panel tells
            let (role, mark) = draft_sign(round, column);
            let parent = round.parent(column).map_or(String::new(), |parent| format!("↳{}", parent + 1));
            (format!("{mark}{}{parent} {}", column + 1, text::inline(&cell.piece)), screen.theme[role])
        }
        Some(_) => {
            let (text, style) = round::draft(screen, round, column, width - 2);
            (format!("{}{text}", draft_sign(round, column).1), style)
        }
        None => {
            let (text, style) = round::draft(screen, round, column, width - 2);
            (format!(" {text}"), style)
        }
    }
}

fn target(screen: Screen, round: &Round, column: usize, width: usize) -> (String, Style) {
    if column >= round.columns() {
        return (String::new(), Style::new());
    }
    // drafts of one row share the target's token: it is printed once
    let repeats_row = round.is_tree() && (0..column).any(|before| round.row_of(before) == round.row_of(column));
    if repeats_row && column < round.drafts.len() {
        return (String::new(), Style::new());
    }
    let (text, style) = round::target(screen, round, column, width - 1);
    let is_added = round.next_index() == Some(column);
    (if is_added { text } else { format!(" {text}") }, style)
}

/// Draft, verify and the rest as a bar.
fn times(screen: Screen, round: &Round) -> Span<'static> {
    let parts = [round.draft_us(), round.verify_us, round.sample_us.saturating_add(round.rollback_us)];
    let whole = parts.iter().map(|us| *us as f64).sum::<f64>().max(1.0);
    let room = TIMES - 1;
    let [draft, _, rest] = parts.map(|us| ((us as f64 / whole) * room as f64).round() as usize);
    let verify = if parts[1] == 0 { 0 } else { room.saturating_sub(draft + rest) };
    let bar = format!("{}{}{}", "▒".repeat(draft), "█".repeat(verify), "▓".repeat(rest));
    Span::styled(fit(&bar, TIMES - 1), screen.theme[Role::PlotBar])
}

fn took(round: &Round) -> String {
    let parts = [round.draft_us(), round.verify_us, round.sample_us, round.rollback_us];
    let us = parts.into_iter().fold(0, u64::saturating_add);
    if us == 0 { String::new() } else { format!("{:.1} ms", us as f64 / 1e3) }
}
