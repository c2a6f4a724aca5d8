//! The answers of one turn side by side, token by token.
//!
//! Invariant: the same token is on the same row and column in every lane; discarded drafts are in a gutter beside the
//! run's own answer and move nothing; the selection is marked in all lanes.

use std::rc::Rc;

use ratatui::buffer::Buffer;

use crate::app::Scroll;
use crate::app::place::hit_map::PREFILL;
use crate::app::place::page::Page;
use draftscope_learn::lesson::Hidden;
use draftscope_protocol::Baseline;

use crate::view::chat::transcript;
use crate::view::compare::agreement;
use crate::view::compare::aligned_layout::{Aligned, Key};
use crate::view::compare::lane_title::title;
use crate::view::learn::hidden::hides;
use crate::view::prelude::*;
use crate::view::values::fate_of;

/// Smallest width for three lanes side by side.
const THREE: u16 = 120;

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) {
    let lanes = lanes(screen, area.width);
    let (gutter, width) = widths(area.width, lanes.len() as u16);
    let height = usize::from(area.height.saturating_sub(2));
    let sheet = screen.turn().map(|turn| Sheet::of(screen, turn, &lanes, width));
    let top = sheet.as_ref().map_or(0, |sheet| sheet.top(height));
    if let Some(sheet) = &sheet {
        (hit_map.top, hit_map.max_top, hit_map.page) = (top, sheet.laid.rows().saturating_sub(height), height);
    }
    for (place, lane) in lanes.iter().enumerate() {
        let x = area.x + place as u16 * (width + 2);
        let is_last = place + 1 == lanes.len();
        let area = Rect { x, width: if is_last { area.right() - x } else { width + 2 }, ..area };
        let block = screen.panel(title(screen, *lane, area.width));
        let bottom = match lane {
            Lane::Speculative => Some(transcript::legend_of_lanes(screen, area.width)),
            // the table above says it
            _ if screen.app.place.page == Page::Compare && !screen.app.place.is_zoomed => {
                agreement::gaps(screen, *lane, area.width)
            }
            _ if hides(screen, Hidden::Agreement) => None,
            _ => agreement::meter(screen, *lane, area.width),
        };
        let block = match bottom {
            Some(bottom) => block.bottom(bottom),
            None => block,
        };
        let inner = framed(block, area, frame);
        match &sheet {
            Some(sheet) if !inner.is_empty() => {
                sheet.draw(*lane, (top, width), inner, (frame.buffer_mut(), hit_map));
                if *lane == Lane::Speculative && gutter > 0 {
                    let gutter = Rect { x: inner.x + width, width: inner.width.saturating_sub(width), ..inner };
                    sheet.discarded(top, gutter, frame);
                }
            }
            _ => empty(screen, inner, frame),
        }
    }
}

fn empty(screen: Screen, area: Rect, frame: &mut Frame) {
    let text = "No answer yet. Send a prompt in Chat: both answers stand here, token beside token.";
    put(wrapped(text, area.width, screen.theme[Role::TextDim]), area, frame);
}

/// The shown lanes, the run's own last.
pub(in crate::view) fn lanes(screen: Screen, width: u16) -> Vec<Lane> {
    let wrote = |lane: Lane| screen.turn().is_some_and(|turn| !turn.answer(lane).tokens.is_empty());
    if width >= THREE && wrote(Lane::Plain) && wrote(Lane::Rival) {
        return vec![Lane::Plain, Lane::Rival, Lane::Speculative];
    }
    vec![screen.beside(), Lane::Speculative]
}

/// Width of the gutter, and of the text of each lane.
fn widths(width: u16, lanes: u16) -> (u16, u16) {
    let gutter = match width {
        0..90 => 4,
        90..132 => 15,
        _ => 24,
    };
    let text = width.saturating_sub(2 * lanes + gutter) / lanes.max(1);
    (gutter, text)
}

/// A turn, laid out.
struct Sheet<'a> {
    screen: Screen<'a>,
    turn: &'a Turn,
    /// Index of the turn.
    index: usize,
    laid: Rc<Aligned>,
}

impl<'a> Sheet<'a> {
    fn of(screen: Screen<'a>, turn: &'a Turn, lanes: &[Lane], width: u16) -> Self {
        let same = |other: &Turn| other.number == turn.number;
        let index = screen.session.turns().iter().rposition(same).unwrap_or(0);
        let (timeline, run) = (screen.app.clock.timelines, screen.time.runs());
        let key = Key { timeline, run, turn: index, lanes: lanes.to_vec(), width };
        Self { screen, turn, index, laid: screen.lines.aligned.lay_out(turn, key) }
    }

    /// The top row, from where the user scrolled.
    fn top(&self, height: usize) -> usize {
        let max_top = self.laid.rows().saturating_sub(height);
        match (self.screen.app.place.scroll, self.screen.app.place.selected) {
            (Scroll::Top(top), _) => top.min(max_top),
            (Scroll::Selected, Some(at)) if at.turn == self.index => {
                let answer = self.turn.answer(Lane::Speculative);
                let round = at.round.and_then(|round| answer.rounds.get(round));
                let first = round.map_or(answer.kept, |round| round.first_token);
                self.laid.row_of(Lane::Speculative, first).saturating_sub(height / 2).min(max_top)
            }
            _ => self.slowest_row().map_or(max_top, |row| {
                // the newest row of the slower lane, and below it some of what the faster one has already
                (row + 1 + height / 3).saturating_sub(height).min(max_top)
            }),
        }
    }

    /// The row that the slowest lane has reached, while lanes race.
    fn slowest_row(&self) -> Option<usize> {
        let races = self.turn.begun.baseline == Baseline::Race || self.turn.begun.rival.is_some();
        let is_over = self.turn.answer(Lane::Speculative).finished.is_some();
        let lanes = Lane::ALL.iter().copied().filter(|lane| *lane != Lane::Speculative);
        let running = lanes.map(|lane| (lane, self.turn.answer(lane))).filter(|(_, answer)| answer.finished.is_none());
        let reached = running.filter(|(_, answer)| !answer.tokens.is_empty());
        let rows = reached.map(|(lane, answer)| self.laid.row_of(lane, answer.tokens.len() - 1));
        rows.min().filter(|_| races || is_over)
    }

    /// The round and column of the run's own token in a slot; `None` if the slot has none.
    fn token(&self, slot: usize) -> Option<(Option<usize>, usize)> {
        let index = self.laid.slots[slot].tokens[Lane::Speculative.index()]?;
        let answer = self.turn.answer(Lane::Speculative);
        let token = answer.tokens.get(index).filter(|_| index >= answer.kept)?;
        let at = answer.rounds.partition_point(|round| round.number() < token.round);
        match answer.rounds.get(at).filter(|round| round.number() == token.round && token.round > 0) {
            Some(round) => Some((Some(at), round.column_of(index.checked_sub(round.first_token)?))),
            None => Some((None, 0)),
        }
    }

    /// Whether a slot belongs to the selected round, and whether it is the selected token.
    fn selection(&self, slot: usize) -> Option<bool> {
        let at = self.screen.app.place.selected.filter(|at| at.turn == self.index)?;
        let (round, column) = self.token(slot)?;
        (round == at.round).then_some(self.screen.app.place.cell == Some(column))
    }

    fn style(&self, lane: Lane, slot: usize) -> Style {
        let theme = self.screen.theme;
        let token = self.laid.slots[slot].tokens[lane.index()].and_then(|at| self.turn.answer(lane).tokens.get(at));
        let role = match token {
            Some(token) if lane != Lane::Plain && token.instead.is_some() => Role::TokenDeparted,
            Some(token) => fate::role(Fate::Committed(token.provenance)),
            None => Role::Text,
        };
        // an underline is for places where the texts differ
        let mut style = undecorated(theme[role]);
        if self.laid.slots[slot].differs {
            let role = if role == Role::TokenDeparted { role } else { Role::Warning };
            style = theme[role].add_modifier(Modifier::UNDERLINED);
        }
        match self.selection(slot) {
            Some(true) => style.patch(theme[Role::Selected]).add_modifier(Modifier::REVERSED),
            Some(false) => style.patch(theme[Role::Selected]),
            None => style,
        }
    }

    fn draw(&self, lane: Lane, (top, width): (usize, u16), area: Rect, (buffer, hits): (&mut Buffer, &mut HitMap)) {
        let from = self.laid.placed.partition_point(|placed| placed.row < top);
        for placed in &self.laid.placed[from..] {
            let y = area.y + (placed.row - top) as u16;
            if y >= area.bottom() {
                break;
            }
            let text = cut(&placed.texts[lane.index()], placed.width.into());
            let style = self.style(lane, placed.slot);
            buffer.set_stringn(area.x + placed.x, y, text, width.saturating_sub(placed.x).into(), style);
            let Some((round, column)) = self.token(placed.slot) else { continue };
            let number = round.map_or(PREFILL, |at| self.turn.answer(Lane::Speculative).rounds[at].number());
            let place = Rect { x: area.x + placed.x, y, width: placed.width, height: 1 }.intersection(area);
            hits.hit(place, Target::Token { turn: self.index, round: number, column });
        }
    }

    /// The discarded drafts of each row, at its end.
    fn discarded(&self, top: usize, area: Rect, frame: &mut Frame) {
        let rounds = &self.turn.answer(Lane::Speculative).rounds;
        let mut rows: Vec<Vec<&Round>> = vec![Vec::new(); area.height.into()];
        let first = rounds.partition_point(|round| self.row_of(round) < top);
        for round in &rounds[first..] {
            match rows.get_mut(self.row_of(round) - top) {
                Some(row) => row.push(round),
                None => break, // below what is in view
            }
        }
        for (y, rounds) in rows.into_iter().enumerate().filter(|(_, rounds)| !rounds.is_empty()) {
            let line = self.gutter(&rounds, area.width.saturating_sub(1).into());
            let place = Rect { x: area.x + 1, y: area.y + y as u16, width: area.width.saturating_sub(1), height: 1 };
            frame.render_widget(line, place.intersection(area));
        }
    }

    /// The row on which a round's newest token stands; before it has one, that of the newest token of all.
    fn row_of(&self, round: &Round) -> usize {
        let newest = (round.first_token + round.committed().len()).saturating_sub(1);
        self.laid.row_of(Lane::Speculative, newest)
    }

    /// The discarded drafts of some rounds, each with its mark; their number if they do not fit.
    fn gutter(&self, rounds: &[&Round], width: usize) -> Line<'static> {
        let theme = self.screen.theme;
        let mut spans: Vec<Span> = Vec::new();
        let (mut used, mut left) = (0, 0);
        for round in rounds {
            for (index, cell) in round.drafts.iter().enumerate() {
                let fate = fate_of(round, index);
                if matches!(fate, Fate::Committed(_)) {
                    continue;
                }
                let name = format!("{}{}", fate::mark(fate), text::inline(&cell.token).trim_start_matches('·'));
                let span = Span::styled(name, undecorated(theme[fate::role(fate)]));
                if left > 0 || used + span.width() + 4 > width {
                    left += 1;
                    continue;
                }
                used += span.width() + 1;
                spans.extend([span, Span::raw(" ")]);
            }
        }
        if left > 0 {
            // a number before the mark is no token after it
            let text =
                if spans.is_empty() { format!("{left}{}", fate::mark(Fate::Rejected)) } else { format!("+{left}") };
            spans.push(Span::styled(text, theme[Role::TextDim]));
        }
        Line::from(spans)
    }
}
