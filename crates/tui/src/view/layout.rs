//! Where the panes of each page are, at every size.
//!
//! Invariant: a zoomed pane has the whole page; the pane with the focus has its line lit. What is in
//! a pane is its own file.

use crate::app::place::page::Pane;

use super::panes::{learn_panel, pane};
use super::prelude::*;
use crate::view::chat::prompt;
use crate::view::compare::table;
use crate::view::inspect::numbers;
use crate::view::learn::lesson::{self, Areas};
use crate::view::rounds::{lattice, loop_lines, presenter, round};
use crate::view::speed::speed_page;

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) {
    if screen.app.place.presents {
        presenter::render(screen, area, frame, hit_map);
        return;
    }
    if screen.app.place.is_zoomed && zooms_lesson(screen, area, frame, hit_map) {
        return;
    }
    if screen.app.place.is_zoomed {
        pane(screen, screen.app.place.pane, area, (frame, hit_map));
        return;
    }
    match screen.app.place.page {
        Page::Chat => chat(screen, area, frame, hit_map),
        Page::Rounds => rounds(screen, area, frame, hit_map),
        Page::Inspect => inspect(screen, area, frame, hit_map),
        Page::Speed => {
            for (shown, area) in speed_page::panes(screen, area) {
                pane(screen, shown, area, (frame, hit_map));
            }
        }
        Page::Compare => compare(screen, area, frame, hit_map),
        Page::Learn => learn(screen, area, frame, hit_map),
    }
}

fn chat(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) {
    let prompt_height = prompt::height(screen, area);
    let [body, prompt] = Layout::vertical([Constraint::Min(3), Constraint::Length(prompt_height)]).areas(area);
    pane(screen, Pane::Prompt, prompt, (frame, hit_map));
    if screen.app.is_welcome(screen.time.live()) {
        pane(screen, Pane::Answer, body, (frame, hit_map));
        return;
    }
    // a tree has its place beside the answer; where nothing stands there, below it
    let is_wide = area.width >= screen.plots_from() && body.height >= 8;
    let usual = match area.height {
        0..20 => 6,
        20..34 => 7,
        _ => 9,
    };
    let room = body.height.saturating_sub(ANSWER);
    let height = if is_wide { usual } else { tree_height(screen, usual, room) };
    let above_round = |area: Rect| Layout::vertical([Constraint::Min(3), Constraint::Length(height)]).areas(area);
    let [answer, round, right] = match is_wide.then(|| beside(body)) {
        None => {
            let [answer, round] = above_round(body);
            [answer, round, Rect::default()]
        }
        Some((left, right)) if round::fits(screen, left.width) => {
            let [answer, round] = above_round(left);
            [answer, round, right]
        }
        // a round with many positions takes the whole width
        Some(_) => {
            let [above, round] = above_round(body);
            let (answer, right) = beside(above);
            [answer, round, right]
        }
    };
    pane(screen, Pane::Answer, answer, (frame, hit_map));
    pane(screen, Pane::Round, round, (frame, hit_map));
    pane(screen, Pane::Plots, right, (frame, hit_map));
}

/// What there is to read at the left, and what was measured at the right of it.
fn beside(body: Rect) -> (Rect, Rect) {
    let width = (u32::from(body.width) * 38 / 100).clamp(33, 70) as u16;
    let [left, right] = Layout::horizontal([Constraint::Min(20), Constraint::Length(width)]).areas(body);
    (left, right)
}

/// Least height of the ladder above the lines of the loop.
const LADDER: u16 = 5;

/// Least height of the answer where a tree stands below it.
const ANSWER: u16 = 6;

/// Height of the panel of a round: where the round is a tree that fits, that of the tree, with the sentence below it.
fn tree_height(screen: Screen, height: u16, most: u16) -> u16 {
    let round = screen.app.round(screen.session).filter(|round| round.is_tree());
    let tree = round.map_or(0, |round| round.drafts.len() as u16 + 3 + FRAME);
    if tree <= most { tree.max(height) } else { height }
}

fn rounds(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) {
    let height = tree_height(screen, if area.height < 34 { 7 } else { 8 }, area.height * 2 / 3);
    let [above, round] = Layout::vertical([Constraint::Min(5), Constraint::Length(height)]).areas(area);
    let lines = match screen.app.place.reads_loop {
        true if above.height >= loop_lines::HEIGHT + LADDER => loop_lines::HEIGHT,
        true => above.height,
        false => 0,
    };
    let [ladder, lines] = Layout::vertical([Constraint::Min(0), Constraint::Length(lines)]).areas(above);
    pane(screen, Pane::Ladder, ladder, (frame, hit_map));
    if !lines.is_empty() {
        loop_lines::render(screen, lines, frame);
    }
    pane(screen, Pane::Round, round, (frame, hit_map));
}

fn inspect(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) {
    let height = numbers::height(area.width).min(area.height / 2);
    let [above, numbers] = Layout::vertical([Constraint::Min(5), Constraint::Length(height)]).areas(area);
    let lattice = lattice::height(screen, above);
    let [bars, lattice] = Layout::vertical([Constraint::Min(5), Constraint::Length(lattice)]).areas(above);
    pane(screen, Pane::Distributions, bars, (frame, hit_map));
    lattice::render(screen, lattice, frame);
    pane(screen, Pane::Numbers, numbers, (frame, hit_map));
}

fn compare(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) {
    let height = table::height(screen, area.width).min(area.height / 2);
    let [table, lanes] = Layout::vertical([Constraint::Length(height), Constraint::Min(5)]).areas(area);
    pane(screen, Pane::Table, table, (frame, hit_map));
    pane(screen, Pane::Lanes, lanes, (frame, hit_map));
}

fn learn(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) {
    let Areas { words, panels, more } = lesson::areas(screen, area);
    pane(screen, Pane::Lesson, words, (frame, hit_map));
    panels.into_iter().for_each(|side| learn_panel(screen, side, frame, hit_map));
    more.into_iter().for_each(|area| lesson::more(screen, area, frame));
}

/// Draws the panels of a step over the whole page; whether there are any.
fn zooms_lesson(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) -> bool {
    let zoomed = (screen.app.place.page == Page::Learn).then(|| lesson::zoomed(screen, area)).flatten();
    let Some((panels, below, keys)) = zoomed else { return false };
    hit_map.lesson_panels = lesson::panels(screen).len();
    panels.into_iter().for_each(|side| learn_panel(screen, side, frame, hit_map));
    put(vec![keys], below, frame);
    true
}
