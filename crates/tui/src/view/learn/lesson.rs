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
mod sliders;
mod slots;
mod text;
mod threads;
mod training;
mod wiring;

use crate::view::bars::status;
use crate::view::learn::hidden::is_open;
use crate::view::prelude::*;
use crate::view::rounds::loop_lines;
use draftscope_learn::lesson::{Panel, Run};

/// Width from which the panels stand beside the words.
const WIDE: u16 = 96;

/// Width of the words beside panels.
const WORDS: (u16, u16) = (44, 62);

/// Least height of the words above panels.
const LEAST: u16 = 7;

/// A panel beside the words; none stands for a run that has not begun.
pub(in crate::view) type Side = (Option<Panel>, Rect);

/// The words of the step on show, or the list of lessons.
pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame, hit_map: &mut HitMap) {
    match screen.app.learning.on_show() {
        Some((lesson, step)) if step.quiz => crate::view::learn::quiz::render(screen, (lesson, step), area, frame),
        Some((lesson, step)) => text::render(screen, (lesson, step), area, (frame, hit_map)),
        None => list::render(screen, area, frame),
    }
}

/// Where the words stand, and the panels beside them.
pub(in crate::view) fn areas(screen: Screen, area: Rect) -> (Rect, Vec<Side>) {
    let panels = panels(screen);
    let presents = screen.app.place.presents;
    if panels.is_empty() {
        return (area, Vec::new());
    }
    if area.width >= WIDE {
        let panels = with_answer(screen, panels, area.height);
        let width = (area.width * 2 / 5).clamp(WORDS.0, WORDS.1);
        let [words, side] = Layout::horizontal([Constraint::Length(width), Constraint::Min(0)]).areas(area);
        return (words, stacked(&panels, side, presents));
    }
    let least = size(panels[0]).0;
    let wanted = height(screen, area.width);
    let room = area.height.saturating_sub(least);
    if room < LEAST {
        return (area, Vec::new());
    }
    let [words, side] = Layout::vertical([Constraint::Length(wanted.min(room)), Constraint::Min(0)]).areas(area);
    (words, stacked(&panels, side, presents))
}

/// The panels, and the answer of the run below them where they leave that much room. Its speed would give away what a
/// question asks, or the one after a run.
fn with_answer(screen: Screen, mut panels: Vec<Option<Panel>>, height: u16) -> Vec<Option<Panel>> {
    let used = panels.iter().fold(0_u16, |used, panel| used.saturating_add(size(*panel).1));
    let has_text = panels.iter().any(|panel| matches!(panel, Some(Panel::Answer | Panel::Lanes)));
    let has_run = screen.app.learning.run().and_then(|run| run.turn(screen.session)).is_some();
    let step = screen.app.learning.step();
    let tells = is_open(screen) || step.is_some_and(|step| step.run.is_some());
    if has_run && !tells && !has_text && height >= used.saturating_add(LEAST) {
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

/// The panels of the step on show, as far as there is something to show.
fn panels(screen: Screen) -> Vec<Option<Panel>> {
    let Some((_, step)) = screen.app.learning.on_show() else { return Vec::new() };
    if step.quiz {
        return Vec::new(); // a round would give an answer away
    }
    let usual = [Panel::Round];
    let run = screen.app.learning.run();
    let shown = if step.show.is_empty() && run.is_some() { &usual[..] } else { &step.show };
    let has_run = run.and_then(|run| run.turn(screen.session)).is_some();
    let answered = if is_open(screen) { &[][..] } else { &step.after };
    let all = answered.iter().chain(shown);
    let mut panels: Vec<Option<Panel>> =
        all.map(|panel| Some(*panel).filter(|panel| has_run || !is_of_run(*panel))).collect();
    let first = panels.iter().position(Option::is_none);
    let mut index = 0;
    panels.retain(|panel| {
        index += 1;
        panel.is_some() || Some(index - 1) == first
    });
    panels
}

/// Rows of a picture for a panel that takes what is left.
const PICTURED: u16 = 14;

/// The panels that a picture of the step shows: not sliders, which a picture cannot move.
fn for_picture(screen: Screen) -> Vec<Option<Panel>> {
    let mut panels = panels(screen);
    panels.retain(|panel| panel.is_some_and(|panel| panel != Panel::Sliders));
    panels
}

/// Rows that show all of them.
pub(in crate::view) fn picture_rows(screen: Screen) -> u16 {
    let rows = |panel| if size(panel).1 == u16::MAX { PICTURED } else { size(panel).1 };
    for_picture(screen).into_iter().map(rows).sum()
}

/// Their places.
pub(in crate::view) fn pictured(screen: Screen, area: Rect) -> Vec<Side> {
    stacked(&for_picture(screen), area, false)
}

/// Whether a panel shows nothing but a run.
fn is_of_run(panel: Panel) -> bool {
    matches!(
        panel,
        Panel::Answer | Panel::Round | Panel::Loop | Panel::Lanes | Panel::Costs | Panel::Dial | Panel::Distributions
    )
}

/// Least and wanted height, with the frame; u16::MAX takes what is left.
fn size(panel: Option<Panel>) -> (u16, u16) {
    const ALL: u16 = u16::MAX;
    match panel {
        None => (5, 7),
        Some(Panel::Answer) => (5, ALL),
        Some(Panel::Round) => (6, 9),
        Some(Panel::Loop) => (loop_lines::HEIGHT, loop_lines::HEIGHT),
        Some(Panel::Lanes) => (7, ALL),
        Some(Panel::Costs) => (5, 8),
        Some(Panel::Dial) => (7, 11),
        Some(Panel::Distributions) => (8, ALL),
        Some(Panel::Memory) => (4, 7),
        Some(Panel::Pass) => (7, 13),
        Some(Panel::Bytes) => (7, 11),
        Some(Panel::Threads) => (10, 10),
        Some(Panel::Slots) => (8, 10),
        Some(Panel::Residual) => (7, 10),
        Some(Panel::Histogram) => (10, 13),
        Some(Panel::Map) => (11, map::HEIGHT),
        Some(Panel::Wiring) => (9, 19),
        Some(Panel::Heads) => (9, 12),
        Some(Panel::Saving) => (9, 12),
        Some(Panel::Training) => (9, 13),
        Some(Panel::Sliders) => (9, 14),
    }
}

/// Panels from top to bottom: those that fit with their least height, the first ones first; what is left goes to the
/// first that wants more. A presenter's round takes what it can get.
fn stacked(panels: &[Option<Panel>], area: Rect, presents: bool) -> Vec<Side> {
    let mut left = area.height;
    let mut heights = Vec::new();
    for panel in panels {
        let least = size(*panel).0;
        if least > left && !heights.is_empty() {
            break;
        }
        heights.push(least.min(left));
        left -= least.min(left);
    }
    for (panel, height) in panels.iter().zip(&mut heights) {
        let wanted = if presents && *panel == Some(Panel::Round) { u16::MAX } else { size(*panel).1 };
        let more = wanted.saturating_sub(*height).min(left);
        *height += more;
        left -= more;
    }
    if let Some(last) = heights.last_mut() {
        *last += left;
    }
    let mut y = area.y;
    let place = |(panel, height): (&Option<Panel>, u16)| {
        let placed = Rect { y, height, ..area };
        y += height;
        (*panel, placed)
    };
    panels.iter().zip(heights).map(place).collect()
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

/// What will run, in words.
fn before_the_run(screen: Screen, area: Rect, frame: &mut Frame) {
    let inner = framed(screen.panel(" The run "), area, frame);
    let Some(run) = screen.app.learning.run() else { return };
    let is_here = screen.app.learning.step().is_some_and(|step| step.run.is_some());
    let text = match (is_here, screen.app.learning.study.is_revealed) {
        (true, true) if run.threads > 0 => {
            "It is answered on all threads first; then its rounds appear here.".to_owned()
        }
        (true, true) => "The prompt is being read: its first round appears here.".to_owned(),
        (true, false) => format!("{} runs {}", screen.app.key(Action::Open), in_words(run)),
        _ => format!("Not run yet: {} goes back to the step that runs {}", screen.app.key(Action::Left), in_words(run)),
    };
    put(wrapped(&text, inner.width, screen.theme[Role::TextDim]), inner, frame);
}

/// A run's prompt and settings.
fn in_words(run: &Run) -> String {
    let raw = if run.raw { " as raw text" } else { "" };
    let temperature = if run.temperature > 0.0 { format!(", temperature {}", run.temperature) } else { String::new() };
    let k = run.against_k.map_or(run.k.to_string(), |other| format!("{} against {other}", run.k));
    let threads = match run.threads {
        0 => String::new(),
        1 => " First on all threads, then on one.".to_owned(),
        threads => format!(" First on all threads, then on {threads}."),
    };
    let drafter = status::drafter_name(run.drafter);
    let beside = match run.against {
        Some(rule) => format!("A second run under {rule} races it, and plain decoding is timed beside both."),
        None => "Plain decoding is timed beside it.".to_owned(),
    };
    format!(
        "“{}”{raw}: k = {k}, drafter {drafter}, rule {}{temperature}, {} tokens at most. {beside}{threads}",
        run.prompt, run.rule, run.tokens
    )
}
