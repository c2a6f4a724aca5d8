//! The lesson page: the words, and beside them the drawings and the live run.
//!
//! Invariant: no panel is blank. Panels of the run appear once the lesson's own run is on show; until then one panel says
//! what will run. An answer is shown only after a choice was made: what a step hides stays hidden until then.

mod bytes;
mod heads;
mod histogram;
mod list;
mod map;
mod pass;
mod residual;
mod saving;
mod shown;
mod side;
mod sliders;
mod slots;
mod text;
mod threads;
mod training;
mod wiring;

use crate::view::learn::hidden::is_open;
use crate::view::prelude::*;
use draftscope_learn::lesson::Panel;

use self::shown::what_runs;

pub(in crate::view) use shown::panels;
pub(in crate::view) use side::{Side, more, picture_rows, pictured, zoomed};

/// Width from which the panels stand beside the words.
const WIDE: u16 = 96;

/// Width of the words beside panels.
const WORDS: (u16, u16) = (44, 62);

/// Least height of the words above panels.
const LEAST: u16 = 7;

/// Where the words stand, the panels beside them, and the line below these, if not all of them fits.
pub(in crate::view) struct Areas {
    pub(in crate::view) words: Rect,
    pub(in crate::view) panels: Vec<Side>,
    pub(in crate::view) more: Option<Rect>,
}

/// The words of the step on show, or the list of lessons.
pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) {
    match screen.app.learning.on_show() {
        Some((lesson, step)) if step.quiz => crate::view::learn::quiz::render(screen, (lesson, step), area, frame),
        Some((lesson, step)) => text::render(screen, (lesson, step), area, (frame, hit_map)),
        None => list::render(screen, area, frame),
    }
}

/// Places the words, and the panels beside or below them.
pub(in crate::view) fn areas(screen: Screen, area: Rect) -> Areas {
    let panels = panels(screen);
    let none = Areas { words: area, panels: Vec::new(), more: None };
    if panels.is_empty() {
        return none;
    }
    if area.width >= WIDE {
        let width = (area.width * 2 / 5).clamp(WORDS.0, WORDS.1);
        let [words, side] = Layout::horizontal([Constraint::Length(width), Constraint::Min(0)]).areas(area);
        let panels = with_answer(screen, panels, side);
        let (panels, more) = side::stacked(screen, &panels, side);
        return Areas { words, panels, more };
    }
    let least = side::least(panels[0]);
    let wanted = height(screen, area.width);
    let room = area.height.saturating_sub(least);
    if room < LEAST {
        return none;
    }
    let [words, side] = Layout::vertical([Constraint::Length(wanted.min(room)), Constraint::Min(0)]).areas(area);
    let (panels, more) = side::stacked(screen, &panels, side);
    Areas { words, panels, more }
}

/// The panels, and the answer of the run below them where they leave that much room. Its speed would give away what a
/// question asks, or the one after a run.
fn with_answer(screen: Screen, mut panels: Vec<Option<Panel>>, area: Rect) -> Vec<Option<Panel>> {
    let used = panels.iter().fold(0_u16, |used, panel| used.saturating_add(side::wanted(screen, *panel, area.width)));
    let has_text = panels.iter().any(|panel| matches!(panel, Some(Panel::Answer | Panel::Lanes)));
    let has_run = screen.app.learning.run().and_then(|run| run.turn(screen.session)).is_some();
    let step = screen.app.learning.step();
    let tells = is_open(screen) || step.is_some_and(|step| step.run.is_some());
    if has_run && !tells && !has_text && area.height >= used.saturating_add(LEAST) {
        panels.push(Some(Panel::Answer));
    }
    panels
}

/// Height that shows all words, with their frame.
pub(in crate::view) fn height(screen: Screen, width: u16) -> u16 {
    let lines = screen
        .app
        .learning
        .on_show()
        .map_or(0, |(lesson, step)| text::body(screen, lesson, step, width.saturating_sub(2)).len());
    u16::try_from(lines).unwrap_or(u16::MAX).saturating_add(2)
}

/// Draws a panel that is a drawing, or what stands for a run that has not begun.
pub(in crate::view) fn drawing(screen: Screen, panel: Option<Panel>, area: Rect, frame: &mut Frame) {
    match panel {
        None => before_the_run(screen, area, frame),
        Some(Panel::Pass) => pass::render(screen, area, frame),
        Some(Panel::Bytes) => bytes::render(screen, area, frame),
        Some(Panel::Threads) => threads::render(screen, area, frame),
        Some(Panel::Slots) => slots::render(screen, area, frame),
        Some(Panel::Residual) => residual::render(screen, area, frame),
        Some(Panel::Histogram) => histogram::render(screen, area, frame),
        Some(Panel::Map) => map::render(screen, area, frame),
        Some(Panel::Wiring) => wiring::render(screen, area, frame),
        Some(Panel::Heads) => heads::render(screen, area, frame),
        Some(Panel::Saving) => saving::render(screen, area, frame),
        Some(Panel::Training) => training::render(screen, area, frame),
        Some(Panel::Sliders) => sliders::render(screen, area, frame),
        // these are panels of other pages
        Some(Panel::Answer | Panel::Round | Panel::Loop | Panel::Lanes | Panel::Costs) => {}
        Some(Panel::Dial | Panel::Distributions | Panel::Memory) => {}
    }
}

fn before_the_run(screen: Screen, area: Rect, frame: &mut Frame) {
    let inner = framed(screen.panel(" The run "), area, frame);
    put(what_runs(screen, inner.width), inner, frame);
}
