//! Where the panes of each page are, at every size.
//!
//! Invariant: a zoomed pane has the whole page; the pane with the focus has its line lit. What is in
//! a pane is its own file.

use crate::app::clock::tour::stop;
use crate::app::place::page::Pane;
use draftscope_learn::lesson::Panel;

use super::prelude::*;
use crate::view::chat::{prompt, transcript, welcome};
use crate::view::compare::{aligned, table};
use crate::view::inspect::{distributions, numbers};
use crate::view::learn::lesson;
use crate::view::rounds::{ladder, lattice, loop_lines, presenter, round, tree};
use crate::view::speed::{
    costs, hero, memory, per_round, positions, speed_page, speed_summary, speedup, times, worths,
};

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) {
    if screen.app.place.presents {
        presenter::render(screen, area, frame, hit_map);
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

/// Draws a pane, marks it for the mouse and lights its line if it has the focus.
fn pane(screen: Screen, pane: Pane, area: Rect, out: (&mut Frame, &mut HitMap)) {
    let (frame, hit_map) = out;
    if area.is_empty() {
        return;
    }
    hit_map.hit(area, Target::Pane(pane));
    match pane {
        Pane::Prompt => prompt::render(screen, area, frame),
        Pane::Answer => answers(screen, area, frame, hit_map),
        Pane::Plots => plots(screen, area, frame),
        Pane::Round => round::render(screen, area, frame, hit_map),
        Pane::Ladder => ladder::render(screen, area, frame, hit_map),
        Pane::Distributions => distributions::render(screen, area, frame),
        Pane::Numbers => numbers::render(screen, area, frame),
        Pane::Curves => speed_page::curves(screen, area, frame),
        Pane::Times => times::render(screen, area, frame),
        Pane::Positions => speed_page::acceptance(screen, area, frame),
        Pane::Costs => speed_page::costs(screen, area, frame),
        Pane::Account => speed_summary::render(screen, area, frame),
        Pane::Memory => memory::render(screen, area, frame),
        Pane::Lanes => aligned::render(screen, area, frame, hit_map),
        Pane::Table => table::render(screen, area, frame),
        Pane::Lesson => lesson::render(screen, area, frame, hit_map),
    }
    let shown = screen.app.clock.tour.and_then(stop).map(|(_, shown, _)| shown);
    if shown.map_or_else(|| screen.app.place.has_focus(pane), |shown| shown == Some(pane)) {
        light(screen, area, frame);
    }
}

/// Gives the title of a pane the colour of the focus.
fn light(screen: Screen, area: Rect, frame: &mut Frame) {
    let (style, title) = (screen.theme[Role::PanelFocused], screen.theme[Role::PanelTitle]);
    let buffer = frame.buffer_mut();
    for x in area.left()..area.right() {
        let Some(cell) = buffer.cell_mut((x, area.y)) else { continue };
        let is_title = (Some(cell.fg), cell.modifier) == (title.fg.or(Some(cell.fg)), title.add_modifier);
        if is_title && !"─┬├┴┌".contains(cell.symbol()) {
            cell.set_style(style);
        }
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

/// Least height of the speed below a tree.
const SPEED: u16 = 6;

fn learn(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) {
    let (words, beside) = lesson::areas(screen, area);
    pane(screen, Pane::Lesson, words, (frame, hit_map));
    beside.into_iter().for_each(|side| learn_panel(screen, side, frame, hit_map));
}

/// A panel beside the words of a lesson: a drawing, or a panel that another page has.
pub(super) fn learn_panel(screen: Screen, (panel, area): lesson::Side, frame: &mut Frame, hit_map: &mut HitMap) {
    match panel {
        Some(Panel::Round) => pane(screen, Pane::Round, area, (frame, hit_map)),
        Some(Panel::Answer) => transcript::render(screen, area, frame, hit_map),
        Some(Panel::Lanes) => aligned::render(screen, area, frame, hit_map),
        Some(Panel::Costs) => costs::render(screen, area, frame),
        Some(Panel::Dial) => worths::render(screen, area, frame),
        Some(Panel::Loop) => loop_lines::render(screen, area, frame),
        Some(Panel::Distributions) => distributions::render(screen, area, frame),
        Some(Panel::Memory) => memory::render(screen, area, frame),
        drawing => lesson::drawing(screen, drawing, area, frame),
    }
}

fn answers(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) {
    if screen.app.is_welcome(screen.time.live()) {
        welcome::render(screen, area, frame, hit_map);
    } else if screen.app.place.split {
        aligned::render(screen, area, frame, hit_map);
    } else {
        transcript::render(screen, area, frame, hit_map);
    }
}

/// The tree of the shown round; below it what there is room for.
fn tree_and_plots(screen: Screen, area: Rect, frame: &mut Frame) {
    let tree = tree::height(screen);
    let tree = if tree + SPEED <= area.height { tree } else { area.height };
    let [tree, below] = Layout::vertical([Constraint::Length(tree), Constraint::Min(0)]).areas(area);
    tree::render(screen, tree, frame);
    let positions = positions::height(screen);
    let positions = if SPEED + positions <= below.height { positions } else { 0 };
    let [above, positions] = Layout::vertical([Constraint::Min(0), Constraint::Length(positions)]).areas(below);
    let [hero, plot] =
        Layout::vertical([Constraint::Length(hero::height(screen, area.width)), Constraint::Min(0)]).areas(above);
    hero::render(screen, hero, frame);
    speedup::render(screen, plot, frame);
    positions::render(screen, positions, frame);
}

fn plots(screen: Screen, area: Rect, frame: &mut Frame) {
    if tree::height(screen) > 0 {
        tree_and_plots(screen, area, frame);
        return;
    }
    // the figure and its plot go last; what is left of the height is the plot's
    let hero = hero_height(screen, area);
    let mut left = area.height.saturating_sub(hero + PLOT);
    let mut take = |wanted: u16, least: u16| {
        let height = if left < least { 0 } else { wanted.min(left) };
        left -= height;
        height
    };
    let positions = take(positions::height(screen), 3);
    let has_rounds = speedup::is_known(screen);
    let per_round = if has_rounds { take(4, 4) } else { 0 };
    let times = take(times::SHORT, times::SHORT + 3);
    let [a, b, c, d, e] = Layout::vertical([
        Constraint::Length(hero),
        Constraint::Min(0),
        Constraint::Length(per_round),
        Constraint::Length(positions),
        Constraint::Length(times),
    ])
    .areas(area);
    hero::render(screen, a, frame);
    speedup::render(screen, b, frame);
    per_round::render(screen, c, frame);
    positions::render(screen, d, frame);
    if !e.is_empty() {
        times::short(screen, e, frame);
    }
}

/// Least height of the plot of the speedup.
pub(super) const PLOT: u16 = 8;

/// Height of the figure: with some room around it on a large screen.
pub(super) fn hero_height(screen: Screen, area: Rect) -> u16 {
    let least = hero::height(screen, area.width);
    if area.height >= 30 { least + 2 } else { least }.min(area.height)
}
