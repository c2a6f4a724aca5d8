//! The strip: the whole run at a glance, one cell a token in the colour of its fate, turn after turn.
//!
//! Invariant: every kept token has a cell; the drafts of the running round follow them until the next one begins. If
//! the run is longer than the strip, the selected round, else the end, is in view. The mouse selects a token by its
//! cell. A frame costs the cells in view, not the whole run.

use std::ops::Range;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use crate::protocol::Lane;
use crate::session::{Answer, Fate, Provenance, TranscriptToken, Turn};
use crate::tui::fate;
use crate::tui::hit_map::{HitMap, PREFILL, Target};
use crate::tui::theme::Role;

use super::screen::Screen;

/// A token where colours show fates.
pub(super) const CELL: &str = "▄";

/// A token of the selected round.
const CHOSEN: &str = "█";

/// Most rows.
const ROWS: u16 = 3;

/// Cells that a turn takes: its number and a space, its tokens, the drafts under way, and a space.
fn cells(turn: &Turn) -> usize {
    let answer = turn.answer(Lane::Speculative);
    label_width(turn) + answer.tokens.len() + pending(answer).count() + 1
}

fn label(turn: &Turn) -> String {
    format!("{} ", turn.number)
}

/// Cells of the label: a frame asks for those of all turns, so nothing is allocated.
fn label_width(turn: &Turn) -> usize {
    turn.number.checked_ilog10().unwrap_or(0) as usize + 2
}

/// Drafts of the running round: all of them until it is committed, then the discarded ones.
fn pending(answer: &Answer) -> impl Iterator<Item = TranscriptToken<'_>> {
    let index = answer.rounds.len().saturating_sub(1);
    let live = answer.rounds.get(index).filter(|_| answer.finished.is_none());
    live.into_iter().flat_map(move |round| {
        let drafts = answer.transcript_between(index..index + 1).filter(|token| token.round == round.round);
        drafts.filter(|token| !round.is_complete || !matches!(token.fate, Fate::Committed(_)))
    })
}

/// Rows of the strip in a panel of this size.
pub(super) fn height(screen: Screen, panel: Rect) -> u16 {
    let has_tokens = screen.session.turns().iter().any(|turn| !turn.answer(Lane::Speculative).tokens.is_empty());
    if !has_tokens || panel.is_empty() {
        return 0;
    }
    let needed = screen.session.turns().iter().map(cells).sum::<usize>().div_ceil(panel.width.into());
    ((panel.height + 1) / 7).min(ROWS).min(u16::try_from(needed).unwrap_or(ROWS))
}

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) {
    let width = usize::from(area.width);
    if area.is_empty() {
        return;
    }
    let all: usize = screen.session.turns().iter().map(cells).sum();
    let rows = all.div_ceil(width);
    let shown = usize::from(area.height).min(rows);
    let focus = focus(screen).unwrap_or(all.saturating_sub(1)) / width;
    let top = focus.saturating_sub(shown / 2).min(rows - shown);
    let view = top * width..(top + shown) * width;
    let mut pen = Pen { screen, area, view, at: 0, frame, hit_map };
    for (index, turn) in screen.session.turns().iter().enumerate() {
        pen.turn(index, turn);
    }
    let dim = screen.theme[Role::TextDim];
    if top > 0 {
        pen.frame.buffer_mut().set_string(area.x, area.y, "‹", dim);
    }
    if top + shown < rows {
        pen.frame.buffer_mut().set_string(area.right() - 1, area.bottom() - 1, "›", dim);
    }
}

/// The cell at which the selected round begins.
fn focus(screen: Screen) -> Option<usize> {
    let at = screen.app.selected?;
    let turns = screen.session.turns();
    let turn = turns.get(at.turn)?;
    let before: usize = turns[..at.turn].iter().map(cells).sum();
    let answer = turn.answer(Lane::Speculative);
    let token = match at.round {
        Some(round) => answer.rounds.get(round)?.first_token,
        None => answer.kept,
    };
    Some(before + label_width(turn) + token)
}

struct Pen<'a, 'b> {
    screen: Screen<'a>,
    area: Rect,
    /// Cells of the whole run that are in view.
    view: Range<usize>,
    /// The next cell.
    at: usize,
    frame: &'a mut Frame<'b>,
    hit_map: &'a mut HitMap,
}

impl Pen<'_, '_> {
    fn turn(&mut self, index: usize, turn: &Turn) {
        let end = self.at + cells(turn);
        if end <= self.view.start || self.at >= self.view.end {
            self.at = end;
            return;
        }
        let answer = turn.answer(Lane::Speculative);
        let start = Target::Token { turn: index, round: PREFILL, column: 0 };
        for c in label(turn).chars() {
            self.cell(&c.to_string(), self.screen.theme[Role::TextDim], Some(start));
        }
        let first = self.at;
        let from = self.view.start.saturating_sub(first).min(answer.tokens.len());
        let to = self.view.end.saturating_sub(first).clamp(from, answer.tokens.len());
        self.at += from;
        for (offset, token) in answer.tokens[from..to].iter().enumerate() {
            let found = answer.round(token.round);
            let column = found.map_or(0, |found| found.column_of((from + offset).saturating_sub(found.first_token)));
            let (fate, departs) = (Fate::Committed(token.provenance), token.instead.is_some());
            self.token(
                index,
                TranscriptToken {
                    piece: &token.piece,
                    fate,
                    round: token.round,
                    column,
                    departs,
                    is_thought: token.is_thought,
                },
            );
        }
        self.at = first + answer.tokens.len();
        for token in pending(answer) {
            self.token(index, token);
        }
        self.at = end;
    }

    fn token(&mut self, turn: usize, token: TranscriptToken) {
        let screen = self.screen;
        let is_first = token.fate == Fate::Committed(Provenance::Prefill);
        let round = if is_first { PREFILL } else { token.round };
        let role = if token.departs { Role::TokenDeparted } else { fate::role(token.fate) };
        let selected = screen.app.selected.filter(|at| at.turn == turn);
        let answer = screen.session.turns()[turn].answer(Lane::Speculative);
        let is_selected = selected.is_some_and(|at| match at.round {
            Some(at) => answer.rounds.get(at).is_some_and(|found| found.round == token.round),
            None => is_first,
        });
        let is_chosen = is_selected && screen.app.cell == Some(token.column);
        let marks = Modifier::UNDERLINED | Modifier::CROSSED_OUT;
        let mut style = screen.theme[role].remove_modifier(marks);
        if is_selected {
            style = style.patch(screen.theme[Role::Selected]);
        }
        if is_chosen {
            style = style.add_modifier(Modifier::REVERSED);
        }
        let sign = match () {
            () if screen.has_signs() && token.piece.special => fate::END,
            () if screen.has_signs() && token.departs => fate::DEPARTED,
            () if screen.has_signs() => fate::sign(token.fate),
            () if is_selected && !is_chosen => CHOSEN,
            () => CELL,
        };
        let target = Target::Token { turn, round, column: token.column };
        self.cell(sign, style, Some(target).filter(|_| round > 0));
    }

    fn cell(&mut self, text: &str, style: Style, target: Option<Target>) {
        let at = self.at;
        self.at += 1;
        if !self.view.contains(&at) {
            return;
        }
        let (place, width) = (at - self.view.start, usize::from(self.area.width));
        let (x, y) = (self.area.x + (place % width) as u16, self.area.y + (place / width) as u16);
        self.frame.buffer_mut().set_string(x, y, text, style);
        if let Some(target) = target {
            self.hit_map.hit(Rect { x, y, width: 1, height: 1 }, target);
        }
    }
}
