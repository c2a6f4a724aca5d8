//! What is in each pane: one file draws it, on a page, zoomed or beside the words of a lesson.

use crate::app::clock::tour::stop;
use crate::app::place::page::Pane;
use draftscope_learn::lesson::Panel;

use super::prelude::*;
use crate::view::chat::{prompt, transcript, welcome};
use crate::view::compare::{aligned, table};
use crate::view::inspect::{distributions, numbers};
use crate::view::learn::lesson;
use crate::view::rounds::{ladder, loop_lines, round, tree};
use crate::view::speed::hero::{PLOT, hero_height};
use crate::view::speed::{
    costs, hero, memory, per_round, positions, speed_page, speed_summary, speedup, times, worths,
};

/// Draws a pane, marks it for the mouse and lights its line if it has the focus.
pub(super) fn pane(screen: Screen, pane: Pane, area: Rect, out: (&mut Frame, &mut HitMap)) {
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

/// Least height of the speed below a tree.
const SPEED: u16 = 6;

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
