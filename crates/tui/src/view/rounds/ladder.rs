//! The rounds, a line each: every draft with the drafter's q and the target's p, the token that the target adds, a dot
//! for each kept token, and the time on one scale for the whole page, with a line at the time of a plain token.
//!
//! Invariant: only lines in view are laid out. A line shows only what its round's events reported; the selected round, or
//! the live one, is always in view. With several turns, a line marks the beginning of each.

use crate::app::place::filter::Filter;
use draftscope_session::round_at::{RoundAt, round_at, rounds};

use crate::view::prelude::*;
use crate::view::rounds::ladder_grid::{GAP, Grid, LABEL, MARK};
use crate::view::rounds::ladder_row::{all, header, row};
use crate::view::rounds::ladder_sums::Sums;
use crate::view::speed::hero;

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) {
    let found: Vec<RoundAt> = fitting(screen);
    let title = format!(" Rounds: {} of {} · {} ", found.len(), count(screen), screen.app.place.filter.name());
    let room = area.width.saturating_sub(title.width() as u16 + 3);
    let sums = Sums::of(screen, &found);
    let figure = hero::above_list(screen, sums.stats.mean_tokens_per_round(), sums.has_others, room);
    let panel = screen.panel(title).title_right(figure);
    let inner = framed(panel, area, frame);
    if inner.is_empty() {
        return;
    }
    if found.is_empty() {
        let text = if count(screen) == 0 {
            "No round yet. Send a prompt in Chat: each round becomes a row here.".to_owned()
        } else {
            format!("No round fits the filter; {} takes the next one.", screen.app.key(Action::NextFilter))
        };
        put(wrapped(&text, inner.width, screen.theme[Role::TextDim]), inner, frame);
        return;
    }
    let has_sums = inner.height >= 8;
    let [head, body, foot] = Layout::vertical([
        Constraint::Length(u16::from(inner.height >= 3)),
        Constraint::Min(1),
        Constraint::Length(u16::from(has_sums)),
    ])
    .areas(inner);
    hit_map.page = usize::from(body.height).max(1);
    let items = in_view(screen, &found, body.height.into());
    let shown: Vec<&Round> = items.iter().filter_map(|item| round_at(screen.session, item.round()?)).collect();
    let grid = Grid::of(screen, &shown, inner.width);
    put(vec![header(screen, &grid)], head, frame);
    let mut lines = Vec::new();
    for item in &items {
        match *item {
            Item::Turn(turn) => lines.push(boundary(screen, turn, body.width.into())),
            Item::Round(at) => {
                let y = body.y + lines.len() as u16;
                if let Some(round) = round_at(screen.session, at) {
                    mark(&grid, (at, round), Rect { y, height: 1, ..body }.intersection(body), hit_map);
                    lines.push(row(screen, &grid, at, round));
                }
            }
        }
    }
    put(lines, body, frame);
    put(vec![all(screen, &grid, &sums)], foot, frame);
}

/// A line of the ladder.
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
    let fits =
        |at: &RoundAt| screen.app.place.filter == Filter::All || screen.app.place.filter.fits_at(screen.session, *at);
    rounds(screen.session).filter(fits).collect()
}

/// The rows that fit into so many lines around the selected one; the newest rows if none is selected.
fn in_view(screen: Screen, all: &[RoundAt], height: usize) -> Vec<Item> {
    let begins = |index: usize| index == 0 || all[index - 1].turn != all[index].turn;
    let has_turns = screen.session.turns().len() > 1;
    let selected = screen.app.place.selected.map(|at| all.partition_point(|other| *other < at).min(all.len() - 1));
    let lines = |index: usize| 1 + usize::from(has_turns && begins(index));
    // upwards from the last shown row, as far as there is room
    let half = height / 2;
    let (mut last, mut below) = (selected.unwrap_or(all.len() - 1), 0);
    while last + 1 < all.len() && below + lines(last + 1) <= half.saturating_sub(1) {
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

/// Records where the columns stand, for the mouse.
fn mark(grid: &Grid, (at, round): (RoundAt, &Round), row: Rect, hit_map: &mut HitMap) {
    hit_map.hit(row, Target::Round { at, column: None });
    for (place, column) in grid.range().enumerate() {
        let x = row.x + (LABEL + place * grid.position()) as u16;
        let cell = Rect { x, width: (grid.position() - GAP) as u16, ..row }.intersection(row);
        hit_map.hit(cell, Target::Round { at, column: Some(column) });
    }
    let x = row.x + (LABEL + grid.count * grid.position()) as u16;
    let own = Rect { x, width: (MARK + grid.word) as u16, ..row }.intersection(row);
    hit_map.hit(own, Target::Round { at, column: round.next_index() });
}
