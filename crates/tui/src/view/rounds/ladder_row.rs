//! A line of the ladder, the line above all of them, and the sums below.
//!
//! Invariant: lines through and under a token decorate its word only; a value that no event reported is blank.

use draftscope_session::round_at::RoundAt;

use crate::view::prelude::*;
use crate::view::rounds::ladder_grid::{GAP, Grid, LABEL, MARK, NUMBER, took};
use crate::view::rounds::ladder_sums::Sums;
use crate::view::screen::marked;
use crate::view::values::{draft_p, draft_sign, fate_of, next_fate, next_sign, number, short};

/// Width of a time in words.
const TOOK: usize = 8;

/// Least width of a bar beside the time in words.
const BAR: usize = 12;

/// A text and its style.
type Part = (String, Style);

/// The names of the columns.
pub(in crate::view) fn header(screen: Screen, grid: &Grid) -> Line<'static> {
    let dim = screen.theme[Role::TextDim];
    let [is_more_left, is_more_right] = grid.has_more();
    let number = |name: &str| format!("{name:>NUMBER$}");
    let mut text = fit(if is_more_left { "    # ‹" } else { "    #" }, LABEL);
    for position in grid.range() {
        let name = if MARK + grid.word < 9 { " draft" } else { "  draft" };
        text.push_str(&fit(&format!("{name} {}", position + 1), MARK + grid.word));
        text.push_str(&if grid.has_q { number("q") } else { String::new() });
        text.push_str(&fit(&number("p"), NUMBER + GAP));
    }
    let more = if is_more_right { "› " } else { "  " };
    let name = if grid.word >= 11 { "target adds" } else { "adds" };
    text.push_str(&fit(&format!("{more}{name}"), MARK + grid.word));
    text.push_str(&fit(&number("p"), NUMBER + GAP));
    text.push_str(&fit("kept", grid.kept));
    let mut spans = vec![Span::styled(text, dim)];
    if grid.times > 0 {
        spans.push(Span::styled(cut(&scale(grid), grid.times), dim));
    }
    Line::from(spans)
}

/// The scale of the times: where a plain token stands, and the end.
fn scale(grid: &Grid) -> String {
    let room = bar_room(grid);
    let end = format!("{:.1} ms", grid.most_us / 1e3);
    let Some(at) = plain_at(grid) else { return format!("{end:>room$}") };
    let name = if at >= 13 { "a plain token" } else { "plain" };
    let before = fit("0", at.saturating_sub(name.width()).max(1));
    let text = format!("{before}{name}");
    if text.width() + end.width() + 2 > room { text } else { format!("{text}{end:>rest$}", rest = room - text.width()) }
}

/// Cells of the bar.
fn bar_room(grid: &Grid) -> usize {
    if grid.times >= BAR + TOOK { grid.times - TOOK } else { grid.times.saturating_sub(1) }
}

/// The cell at which the time of a plain token ends.
fn plain_at(grid: &Grid) -> Option<usize> {
    let room = bar_room(grid);
    grid.plain_us.map(|us| ((us / grid.most_us * room as f64).round() as usize).clamp(1, room.max(1)) - 1)
}

pub(in crate::view) fn row(screen: Screen, grid: &Grid, at: RoundAt, round: &Round) -> Line<'static> {
    let is_here = screen.app.round_index(screen.session) == Some(at);
    let marker = if is_here { "▸" } else { " " };
    let label = fit(&format!("{marker}{:>4}{}", round.number(), marked(screen, round)), LABEL);
    let role = if is_here { Role::TextStrong } else { Role::TextDim };
    let mut spans = vec![Span::styled(label, screen.theme[role])];
    let chosen = |column: usize| is_here && screen.app.place.cell == Some(column);
    for column in grid.range() {
        spans.extend(over(screen, chosen(column), position(screen, grid, round, column)));
        spans.push(Span::raw(" ".repeat(GAP)));
    }
    let own = round.next_index().is_some_and(chosen);
    spans.extend(over(screen, own, added(screen, grid, round)));
    spans.push(Span::raw(" ".repeat(GAP)));
    spans.extend(kept(screen, grid, round));
    if grid.times > 0 {
        spans.extend(times(screen, grid, round));
    }
    let line = Line::from(spans);
    // a background marks the line; without one its marker does
    let ground = screen.theme[Role::Selected].bg.filter(|_| is_here);
    ground.map_or(line.clone(), |ground| line.patch_style(Style::new().bg(ground)))
}

/// The look of a selected cell.
fn over(screen: Screen, is_chosen: bool, parts: Vec<Part>) -> impl Iterator<Item = Span<'static>> {
    let selected = screen.theme[Role::Selected];
    let with_ground = selected.bg.map_or(selected, |_| selected.add_modifier(Modifier::REVERSED));
    let patch = if is_chosen { with_ground } else { Style::new() };
    parts.into_iter().map(move |(text, style)| Span::styled(text, style.patch(patch)))
}

/// A word in its cell: what is decorated, and the padding, which is not.
fn word(text: &str, width: usize, style: Style) -> [Part; 2] {
    let text = cut(text, width);
    let padding = " ".repeat(width.saturating_sub(text.width()));
    [(text, style), (padding, undecorated(style))]
}

fn right(text: &str) -> String {
    format!("{text:>NUMBER$}")
}

/// A draft with its mark, q and the target's p.
fn position(screen: Screen, grid: &Grid, round: &Round, column: usize) -> Vec<Part> {
    let Some(cell) = round.drafts.get(column) else {
        let width = grid.position() - GAP;
        let is_to_come = column < round.draft_len().into() && round.rows().is_empty();
        let text = if is_to_come { "  …" } else { "" };
        return vec![(fit(text, width), screen.theme[Role::TextDim])];
    };
    let (role, mark) = draft_sign(round, column);
    let style = screen.theme[role];
    let name = text::inline(&cell.token);
    let mut parts = vec![(format!("{mark} "), undecorated(style))];
    if round.is_tree() {
        // its place in the tree matters more than the end of a long word
        let parent = round.parent(column).map_or(String::new(), |parent| format!("↳{}", parent + 1));
        let place = cut(&format!("{}{parent} ", column + 1), grid.word);
        let left = grid.word - place.width();
        parts.push((place, undecorated(style)));
        parts.extend(word(&name, left, style));
    } else {
        parts.extend(word(&name, grid.word, style));
    }
    if grid.has_q {
        parts.push((right(&cell.q.map_or(String::new(), short)), screen.theme[Role::TextDim]));
    }
    let fate = fate_of(round, column);
    let p = draft_p(round, column).filter(|_| fate != Fate::NotReached);
    let of_p = if fate == Fate::Rejected { undecorated(style) } else { screen.theme[Role::Text] };
    parts.push((right(&p.map_or(String::new(), short)), of_p));
    parts
}

/// The token that the target adds, with its p.
fn added(screen: Screen, grid: &Grid, round: &Round) -> Vec<Part> {
    let Some((piece, column)) = round.next_piece().zip(round.next_index()) else {
        return vec![(" ".repeat(MARK + grid.word + NUMBER), screen.theme[Role::TextDim])];
    };
    let (role, mark) = next_sign(round);
    let style = screen.theme[role];
    let p = round.prediction(column).and_then(|row| row.find(piece.id)).map(|found| found.1);
    let mut parts = vec![(format!("{mark} "), undecorated(style))];
    parts.extend(word(&text::inline(&piece), grid.word, style));
    parts.push((right(&p.map_or(String::new(), short)), screen.theme[Role::Text]));
    parts
}

/// A dot for each token that the round wrote.
fn kept(screen: Screen, grid: &Grid, round: &Round) -> Vec<Span<'static>> {
    let room = grid.kept - GAP;
    if !round.is_complete() {
        return vec![Span::styled(fit("…", grid.kept), screen.theme[Role::TextDim])];
    }
    let all = round.committed().len();
    let accepted = round.accepted().min(all);
    let style = |fate: Fate| undecorated(screen.theme[fate::role(fate)]);
    if all > room {
        return vec![Span::styled(fit(&format!("{all} ●"), grid.kept), style(Fate::Committed(Provenance::Accepted)))];
    }
    vec![
        Span::styled("●".repeat(accepted), style(Fate::Committed(Provenance::Accepted))),
        Span::styled("●".repeat(all - accepted), style(next_fate(round))),
        Span::raw(" ".repeat(grid.kept - all)),
    ]
}

/// The time of a round as a line, with a mark where a plain token ends, and in words.
fn times(screen: Screen, grid: &Grid, round: &Round) -> Vec<Span<'static>> {
    let (room, parts) = (bar_room(grid), took(round));
    let whole: f64 = parts.iter().sum();
    let mut cells = vec![(' ', Role::PlotAxis); room];
    let (mut drawn, mut reached) = (0, 0.0);
    for (us, role) in parts.into_iter().zip([Role::PhaseDraft, Role::PhaseVerify, Role::PhaseRest]) {
        reached += us;
        let end = ((reached / grid.most_us * room as f64).round() as usize).clamp(drawn, room);
        cells[drawn..end].fill(('━', role));
        drawn = end;
    }
    if let Some(cell) = plain_at(grid).and_then(|at| cells.get_mut(at)) {
        *cell = if cell.0 == '━' { ('┿', cell.1) } else { ('│', Role::PlotAxis) };
    }
    let mut spans: Vec<Span> = Vec::new();
    for run in cells.chunk_by(|a, b| a.1 == b.1) {
        let text: String = run.iter().map(|(glyph, _)| glyph).collect();
        spans.push(Span::styled(text, screen.theme[run[0].1]));
    }
    if grid.times >= BAR + TOOK {
        let words = if whole > 0.0 { format!("{:.1} ms", whole / 1e3) } else { String::new() };
        spans.push(Span::styled(format!("{words:>TOOK$}"), screen.theme[Role::TextDim]));
    }
    spans
}

/// The sums of the rounds in the list, and what the colours of the times are.
pub(super) fn all(screen: Screen, grid: &Grid, sums: &Sums) -> Line<'static> {
    let (stats, dim) = (&sums.stats, screen.theme[Role::TextDim]);
    let mut spans = vec![Span::styled(fit(sums.name, LABEL), dim)];
    let counts: Vec<_> = stats.accepted_per_pos().iter().zip(stats.offered_per_pos()).collect();
    let accepted = undecorated(screen.theme[Role::TokenAccepted]);
    for position in grid.range() {
        let text = counts.get(position).map_or(String::new(), |(some, of)| format!("  {some} of {of}"));
        spans.push(Span::styled(fit(&text, grid.position()), accepted));
    }
    let width = MARK + grid.word + NUMBER + GAP;
    let sums = [Fate::Committed(Provenance::Bonus), Fate::Committed(Provenance::Recovered)].map(fate::sign);
    let text = format!("{} {} {} {}", sums[0], stats.bonus(), sums[1], stats.recovered());
    spans.push(Span::styled(fit(&text, width), screen.theme[Role::Text]));
    spans.push(Span::styled(fit(&number(stats.mean_tokens_per_round(), 2), grid.kept), screen.theme[Role::TextStrong]));
    let mut left = grid.times;
    for (name, role) in [("draft ", Role::PhaseDraft), ("verify ", Role::PhaseVerify), ("rest", Role::PhaseRest)] {
        if name.width() > left {
            break;
        }
        left -= name.width();
        spans.push(Span::styled(name, screen.theme[role]));
    }
    Line::from(spans)
}
