//! A round as boxes, one a token: the drafts above the target's own tokens, the verdicts between them.
//!
//! Invariant: a box with a thick frame is a kept token, and one line, the cut, separates kept from discarded tokens: it
//! runs left of the first rejected draft and right of the target's token in its place. A token that no event has
//! reported yet is an empty box.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType};
use unicode_width::UnicodeWidthStr;

use crate::app::place::hit_map::{HitMap, Target};
use crate::look::fate;
use crate::look::theme::Role;
use crate::widgets::cell::{cut, fit, undecorated};
use draftscope_session::{Fate, Round, text};

use crate::view::panel::put;
use crate::view::rounds::round::{Columns, Own, own, verdict};
use crate::view::rounds::token_cell::TokenCell;
use crate::view::rounds::tree;
use crate::view::screen::Screen;
use crate::view::values::draft_sign;

/// Width of the names of the rows.
const LABEL: usize = 10;

/// Least and greatest width of a column: a box and the gap before it.
const WIDTH: (usize, usize) = (11, 34);

/// Height of the drawing with boxes of so many lines.
pub(in crate::view) const fn height(lines: u16) -> u16 {
    2 * (lines + 2) + 1
}

/// The content of a box.
struct Content {
    name: String,
    number: Option<String>,
    style: Style,
    is_kept: bool,
}

pub(in crate::view) fn render(screen: Screen, round: &Round, lines: u16, area: Rect, out: (&mut Frame, &mut HitMap)) {
    let (frame, hit_map) = out;
    if round.is_tree() {
        put(tree::lines(screen, round, area), area, frame);
        return;
    }
    let columns = Columns::within(screen, round, area.width, (LABEL, WIDTH));
    let box_height = lines + 2;
    let rows = [area.y, area.y + box_height + 1];
    let labels = [["drafter", "proposes"], ["target", "decides"]];
    for (y, label) in rows.iter().zip(labels) {
        let label = label.map(|text| Line::styled(text, screen.theme[Role::TextDim]));
        let place = Rect { x: area.x + 1, y: y + 1 + lines / 3, width: LABEL as u16 - 1, height: lines.min(2) };
        put(label.to_vec(), place.intersection(area), frame);
    }
    for (place, column) in columns.range().enumerate() {
        let x = area.x + (LABEL + place * columns.width) as u16;
        let cell =
            |y: u16, height: u16| Rect { x: x + 1, y, width: columns.width as u16 - 1, height }.intersection(area);
        if let Some(at) = screen.app.round_index(screen.session) {
            hit_map.hit(cell(area.y, height(lines)), Target::Round { at, column: Some(column) });
        }
        let is_chosen = screen.app.place.cell == Some(column);
        for (y, content) in rows.iter().zip([draft(screen, round, column), target(screen, round, column)]) {
            if let Some(content) = content {
                draw(screen, &content, is_chosen, cell(*y, box_height), frame);
            }
        }
        let TokenCell { word: text, style, .. } = verdict(screen, round, column, columns.width);
        let between = cell(area.y + box_height, 1);
        if round.first_discarded() == Some(column) {
            part(screen, (x, columns.width as u16), (area, between.y), frame);
        }
        let text = if text.is_empty() { text } else { cut(&format!(" {text} "), between.width.into()) };
        frame.render_widget(Line::styled(text, style).centered(), between);
    }
    for (is_more, sign, x) in [
        (columns.first > 0, "‹", area.x + LABEL as u16),
        (columns.range().end < columns.all, "›", area.right().saturating_sub(1)),
    ] {
        let place = Rect { x, y: area.y + box_height, width: 1, height: 1 }.intersection(area);
        if is_more {
            frame.render_widget(Line::styled(sign, screen.theme[Role::Key]), place);
        }
    }
}

fn draft(screen: Screen, round: &Round, column: usize) -> Option<Content> {
    let Some(cell) = round.drafts.get(column) else {
        let is_to_come = column < round.draft_len().into() && round.rows().is_empty();
        let style = screen.theme[Role::TextDim];
        return is_to_come.then(|| Content { name: "…".to_owned(), number: None, style, is_kept: false });
    };
    let (role, _) = draft_sign(round, column);
    let is_kept = round.path().any(|index| index == column) && !round.is_cut(column);
    let number = cell.q.map(|q| format!("q {q:.2}"));
    Some(Content { name: text::inline(&cell.token), number, style: screen.theme[role], is_kept })
}

fn target(screen: Screen, round: &Round, column: usize) -> Option<Content> {
    let is_added = round.next_index() == Some(column);
    let Some(Own { mark, name, p, role }) = own(round, column) else {
        let style = screen.theme[Role::TextDim];
        return (column < round.columns()).then(|| Content {
            name: String::new(),
            number: None,
            style,
            is_kept: false,
        });
    };
    let is_unused = round.first_discarded().is_some_and(|first| column > first);
    let role = if is_unused { Role::TextDim } else { role };
    let number = p.map(|p| format!("p {p:.2}"));
    let name = format!("{mark}{name}");
    Some(Content { name, number, style: screen.theme[role], is_kept: is_added && !round.is_cut(column) })
}

fn draw(screen: Screen, content: &Content, is_chosen: bool, area: Rect, frame: &mut Frame) {
    let kind = if content.is_kept { BorderType::Thick } else { BorderType::Plain };
    // a mark in the text does not belong to the frame
    let frame_style = content.style.remove_modifier(Modifier::all());
    let block = Block::bordered().border_type(kind).border_style(frame_style);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    if inner.is_empty() {
        return;
    }
    let width = usize::from(inner.width);
    let number = content.number.as_deref().unwrap_or_default();
    let style = if is_chosen { content.style.patch(screen.theme[Role::Selected]) } else { content.style };
    let dim = screen.theme[Role::Text];
    let lines = match inner.height {
        1 => {
            let room = width.saturating_sub(number.width() + 1);
            let number = Span::styled(format!(" {number}"), undecorated(style));
            vec![Line::from(vec![Span::styled(cut(&content.name, room), style), number])]
        }
        height => {
            let gap = usize::from(height > 2);
            let mut lines = vec![Line::default(); usize::from(height).saturating_sub(3) / 2];
            lines.push(Line::styled(cut(&content.name, width), style));
            lines.extend(std::iter::repeat_n(Line::default(), gap));
            lines.push(Line::styled(fit(number, number.width().min(width)), dim));
            lines
        }
    };
    put(lines.into_iter().map(Line::centered).collect(), inner, frame);
}

/// The cut, at the column of the first rejected draft.
fn part(screen: Screen, (x, width): (u16, u16), (area, between): (Rect, u16), frame: &mut Frame) {
    let style = screen.theme[fate::role(Fate::Rejected)].remove_modifier(Modifier::all());
    let right = x + width;
    let mut set = |x: u16, y: u16, sign: &str| {
        if let Some(cell) = frame.buffer_mut().cell_mut((x, y)).filter(|_| area.contains((x, y).into())) {
            cell.set_symbol(sign).set_style(style);
        }
    };
    (area.y..between).for_each(|y| set(x, y, "┃"));
    (x..=right).for_each(|x| set(x, between, "━"));
    set(x, between, "┗");
    set(right, between, "┓");
    (between + 1..area.bottom()).for_each(|y| set(right, y, "┃"));
}
