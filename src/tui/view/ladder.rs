//! The ladder: one row per round, a cell per position: the draft with q above, the target's own token with p below,
//! also for a draft that was not reached; the added token; and a bar of the times.
//!
//! Invariant: only rows in view are laid out. A row shows only what its round's events reported; the selected round, or
//! the live one, is always in view. With several turns, a line marks the beginning of each.

use crate::tui::filter::Filter;
use crate::tui::selection::{RoundAt, round_at, rounds};

use super::prelude::*;
use super::round;
use super::screen::marked;
use super::values::draft_sign;

/// Width of the round's number and verdict.
const LABEL: usize = 9;

/// Least and greatest width of the times at the right edge.
const TIMES: (usize, usize) = (12, 48);

/// Least and greatest width of a column.
const WIDTH: (usize, usize) = (12, 32);

/// The parts of the bar of times.
const PARTS: [(&str, &str); 3] = [("▒", "draft"), ("█", "verify"), ("▓", "rest")];

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
    /// Columns for the widest of the rounds in view, around the chosen one.
    fn of(screen: Screen, shown: &[RoundAt], width: u16) -> Self {
        let columns = |at: &RoundAt| round_at(screen.session, *at).map_or(1, Round::columns);
        let most = shown.iter().map(columns).max().unwrap_or(1).max(1);
        let least = if width >= 76 { TIMES.0 } else { 0 };
        let room = usize::from(width).saturating_sub(LABEL + least).max(1);
        let width = (room / most).clamp(WIDTH.0, WIDTH.1);
        let count = (room / width).clamp(1, most);
        // the space left by the columns makes the bar longer
        let times = if least > 0 { (least + room.saturating_sub(count * width)).min(TIMES.1) } else { 0 };
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
    let stats = screen.turn().map(|turn| turn.answer(Lane::Speculative).stats());
    let mean = stats.and_then(|stats| stats.mean_tokens_per_round()).map(|mean| {
        let words = Span::styled(" tokens per round ", screen.theme[Role::PanelTitle]);
        Line::from(vec![screen.hero(&format!("{mean:.2}"), Role::TextStrong), words])
    });
    let block = screen.panel(title).title_right(mean.unwrap_or_default());
    let block = block.bottom(caption(screen, area.width)).bottom_right(parts(screen, area.width));
    let inner = framed(block, area, frame);
    if inner.is_empty() {
        return;
    }
    if all.is_empty() {
        let text = if count(screen) == 0 {
            "No round yet. Send a prompt in Chat: each round becomes a row here.".to_owned()
        } else {
            format!("No round fits the filter; {} takes the next one.", screen.app.key(Action::NextFilter))
        };
        put(wrapped(&text, inner.width, screen.theme[Role::TextDim]), inner, frame);
        return;
    }
    hit_map.page = (usize::from(inner.height) / ROW).max(1);
    let items = in_view(screen, &all, inner.height.into());
    let shown: Vec<RoundAt> = items.iter().filter_map(Item::round).collect();
    let grid = Grid::of(screen, &shown, inner.width);
    let mut lines = Vec::new();
    for item in &items {
        match *item {
            Item::Turn(turn) => lines.push(boundary(screen, turn, inner.width.into())),
            Item::Round(at) => {
                let y = inner.y + lines.len() as u16;
                mark(&grid, at, Rect { y, height: ROW as u16, ..inner }.intersection(inner), hit_map);
                if let Some(round) = round_at(screen.session, at) {
                    lines.extend(row(screen, &grid, at, round));
                }
            }
        }
    }
    put(lines, inner, frame);
}

/// A line or two of the ladder.
enum Item {
    /// The turn of this index begins.
    Turn(usize),
    Round(RoundAt),
}

impl Item {
    fn round(&self) -> Option<RoundAt> {
        match self {
            Self::Turn(_) => None,
            Self::Round(at) => Some(*at),
        }
    }
}

fn count(screen: Screen) -> usize {
    rounds(screen.session).count()
}

fn fitting(screen: Screen) -> Vec<RoundAt> {
    let fits = |at: &RoundAt| screen.app.filter == Filter::All || screen.app.filter.fits_at(screen.session, *at);
    rounds(screen.session).filter(fits).collect()
}

/// The rows that fit into so many lines around the selected one; the newest rows if none is selected.
fn in_view(screen: Screen, all: &[RoundAt], height: usize) -> Vec<Item> {
    let begins = |index: usize| index == 0 || all[index - 1].turn != all[index].turn;
    let has_turns = screen.session.turns().len() > 1;
    let selected = screen.app.selected.map(|at| all.partition_point(|other| *other < at).min(all.len() - 1));
    let lines = |index: usize| ROW + usize::from(has_turns && begins(index));
    // upwards from the last shown row, as far as there is room
    let half = height / 2;
    let (mut last, mut below) = (selected.unwrap_or(all.len() - 1), 0);
    while last + 1 < all.len() && below + lines(last + 1) <= half.saturating_sub(ROW) {
        below += lines(last + 1);
        last += 1;
    }
    let (mut first, mut used) = (last, lines(last));
    while first > 0 && used + lines(first - 1) <= height {
        first -= 1;
        used += lines(first);
    }
    while last + 1 < all.len() && used + lines(last + 1) <= height {
        last += 1;
        used += lines(last);
    }
    let items = (first..=last).flat_map(|index| {
        let turn = (has_turns && begins(index)).then_some(Item::Turn(all[index].turn));
        turn.into_iter().chain([Item::Round(all[index])])
    });
    items.collect()
}

/// The line before the first round of a turn.
fn boundary(screen: Screen, turn: usize, width: usize) -> Line<'static> {
    let turn = screen.session.turns().get(turn);
    let words = turn.map_or(String::new(), |turn| format!("── turn {}: {} ", turn.number, text::one_line(&turn.typed)));
    let words = cut(&words, width.saturating_sub(2));
    let rest = "─".repeat(width.saturating_sub(words.width()));
    Line::from(vec![Span::styled(words, screen.theme[Role::User]), Span::styled(rest, screen.theme[Role::PanelBorder])])
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
        " above: drafts, ↳ the one that each continues · below: target's own "
    } else if width >= 136 {
        " above: draft with q · below: the target's own token with p · the last column: what the target says next "
    } else {
        " above: draft, q · below: target's own, p "
    };
    Line::styled(text, screen.theme[Role::TextDim])
}

/// The legend of the bar of times, if there is room for it.
fn parts(screen: Screen, width: u16) -> Line<'static> {
    if width < 78 {
        return Line::default();
    }
    let parts = PARTS.map(|(sign, name)| {
        [
            Span::styled(format!(" {sign}"), screen.theme[Role::PlotBar]),
            Span::styled(format!(" {name}"), screen.theme[Role::TextDim]),
        ]
    });
    let mut spans: Vec<Span> = vec![Span::styled(" time:", screen.theme[Role::TextDim])];
    spans.extend(parts.into_iter().flatten());
    spans.push(Span::raw(" "));
    Line::from(spans)
}

fn row(screen: Screen, grid: &Grid, at: RoundAt, round: &Round) -> [Line<'static>; 2] {
    let is_here = screen.app.round_index(screen.session) == Some(at);
    let chosen = |column: usize, style: Style| {
        let is_cell = is_here && screen.app.cell == Some(column);
        if is_cell { style.patch(screen.theme[Role::Selected]) } else { style }
    };
    let marker = if is_here { "▸" } else { " " };
    let accepted = if round.verdict.is_some() {
        let drafted = if round.drafts_unknown { "?".to_owned() } else { round.drafts.len().to_string() };
        format!("{:>3} of {drafted}", round.accepted())
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
        above.push(times(screen, round, grid.times));
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
            // its place in the tree matters more here than q, which the round's own panel shows
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
fn times(screen: Screen, round: &Round, width: usize) -> Span<'static> {
    let parts = [round.draft_us(), round.verify_us, round.sample_us.saturating_add(round.rollback_us)];
    let whole = parts.iter().map(|us| *us as f64).sum::<f64>().max(1.0);
    let room = width - 1;
    let [draft, _, rest] = parts.map(|us| ((us as f64 / whole) * room as f64).round() as usize);
    let verify = if parts[1] == 0 { 0 } else { room.saturating_sub(draft + rest) };
    let [a, b, c] = PARTS.map(|(sign, _)| sign);
    let bar = format!("{}{}{}", a.repeat(draft), b.repeat(verify), c.repeat(rest));
    Span::styled(fit(&bar, room), screen.theme[Role::PlotBar])
}

fn took(round: &Round) -> String {
    let parts = [round.draft_us(), round.verify_us, round.sample_us, round.rollback_us];
    let us = if round.lacks_phases() { round.took_us() } else { parts.into_iter().fold(0, u64::saturating_add) };
    if us == 0 { String::new() } else { format!("{:.1} ms", us as f64 / 1e3) }
}
