//! The conversation: prompts, and answers in which every token shows its fate, with the strip below.
//!
//! Invariant: output tokens appear in order, joined into whole characters; shown discarded drafts are where they were,
//! before the token that replaced them, and never break a line. This file decides which lines are in view, from where
//! the user scrolled; `transcript_layout.rs` makes them.

use std::rc::Rc;

use crate::tui::app::Scroll;
use crate::tui::hit_map::Hit;

use super::prelude::*;
use super::strip;
use super::transcript_blocks::{Block, TURNS};
use super::transcript_cache::Laid;
use super::transcript_layout::{lay_out, parts};

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) {
    let inner = framed(screen.panel(" Answer ").bottom(legend(screen, area.width)), area, frame);
    let strip = strip::height(screen, inner);
    let [inner, below] = Layout::vertical([Constraint::Min(0), Constraint::Length(strip)]).areas(inner);
    if inner.is_empty() {
        return;
    }
    strip::render(screen, below, frame, hit_map);
    let blocks = lay_out(screen, Lane::Speculative, inner.width);
    let transcript = Transcript { screen, width: inner.width, blocks: &blocks };
    let height = usize::from(inner.height);
    let total: usize = blocks.iter().map(Block::lines).sum();
    let max_top = total.saturating_sub(height);
    let top = match (screen.app.scroll, transcript.selected_line()) {
        (Scroll::Follow, _) | (Scroll::Selected, None) => max_top,
        (Scroll::Turn, _) => transcript.first_line().min(max_top),
        (Scroll::Top(top), _) => top.min(max_top),
        (Scroll::Selected, Some(line)) => line.saturating_sub(height / 2).min(max_top),
    };
    (hit_map.top, hit_map.max_top, hit_map.page) = (top, max_top, height);
    let (before, parts) = transcript.parts_in(top, height);
    mark(&parts, top - before, inner, hit_map);
    put(visible(&parts, top - before, height), inner, frame);
}

/// The blocks of the answer.
struct Transcript<'a> {
    screen: Screen<'a>,
    width: u16,
    blocks: &'a [Block],
}

impl Transcript<'_> {
    fn parts(&self, block: &Block) -> Rc<[Laid]> {
        parts(self.screen, Lane::Speculative, self.width, block)
    }

    /// The parts of all blocks in view, and the lines before them.
    fn parts_in(&self, top: usize, height: usize) -> (usize, Vec<Laid>) {
        let (mut start, mut before, mut found) = (0, 0, Vec::new());
        for block in self.blocks {
            let end = start + block.lines();
            if end <= top {
                before = end;
            } else if start < top + height {
                found.extend(self.parts(block).iter().cloned());
            }
            start = end;
        }
        (before, found)
    }

    /// Line of the whole transcript on which the selected round begins. It is in no settled block.
    fn selected_line(&self) -> Option<usize> {
        let mut before = 0;
        for block in self.blocks {
            if let Block::Laid(parts) = block {
                for part in parts.iter() {
                    if let Some(line) = part.selected {
                        return Some(before + line);
                    }
                    before += part.lines.len();
                }
            } else {
                before += block.lines();
            }
        }
        None
    }

    /// Line of the whole transcript on which the turn of the selected round begins.
    fn first_line(&self) -> usize {
        let turn = self.screen.app.selected.map_or(0, |at| at.turn);
        let whole = self.blocks.iter().take(turn / TURNS).map(Block::lines).sum::<usize>();
        let own = self.blocks.get(turn / TURNS).map(|block| self.parts(block));
        let before = own.iter().flat_map(|parts| parts.iter()).take_while(|part| part.turn < turn);
        whole + before.map(|part| part.lines.len()).sum::<usize>()
    }
}

/// Tells the mouse where the tokens in view are. The first `top` lines of the parts are above the area.
fn mark(laid: &[Laid], top: usize, area: Rect, hit_map: &mut HitMap) {
    let mut y = 0;
    for part in laid {
        let turn = part.turn;
        for tags in part.tags.iter() {
            if y >= top && y < top + usize::from(area.height) {
                let row = area.y + (y - top) as u16;
                for tag in tags.iter().filter(|tag| tag.round > 0) {
                    let place = Rect { x: area.x + tag.x, y: row, width: tag.width, height: 1 };
                    let target = Target::Token { turn, round: tag.round, column: tag.column.into() };
                    hit_map.hits.push(Hit { area: place.intersection(area), target });
                }
            }
            y += 1;
        }
    }
}

fn visible(laid: &[Laid], top: usize, height: usize) -> Vec<Line<'static>> {
    let mut skip = top;
    let mut shown = Vec::new();
    for turn in laid {
        if skip < turn.lines.len() {
            shown.extend(turn.lines.iter().skip(skip).take(height - shown.len()).cloned());
        }
        skip = skip.saturating_sub(turn.lines.len());
    }
    shown
}

/// The marks with the longest names that fit.
pub(super) fn legend(screen: Screen, width: u16) -> Line<'static> {
    // few answers contain one: its mark is explained where it is
    let departs = screen.turn().is_some_and(|turn| turn.answer(Lane::Speculative).departures().next().is_some());
    let has_signs = screen.has_signs() || screen.has_marks();
    let sign = |sign: &'static str| if has_signs { sign } else { strip::CELL };
    let at = |(length, departs): (usize, bool)| {
        let entry = |(fate, names): &(Fate, [&'static str; 3])| {
            let style = screen.theme[fate::role(*fate)];
            let text = format!("{}{}", sign(fate::sign(*fate)), names[length]);
            [Span::styled(text, style), Span::raw(" ")]
        };
        let mut spans = vec![Span::raw(" ")];
        spans.extend(fate::LEGEND.iter().flat_map(entry));
        if departs {
            let text = format!("{}{}", sign(fate::DEPARTED), fate::DEPARTED_NAMES[1]);
            spans.extend([Span::styled(text, screen.theme[Role::TokenDeparted]), Span::raw(" ")]);
        }
        Line::from(spans)
    };
    let fits = |line: &Line| line.width() + 2 <= width.into();
    let forms = [(0, departs), (1, departs), (2, departs)];
    forms.into_iter().map(at).find(fits).unwrap_or_else(|| at((2, false)))
}
