//! Which panels a step shows now, and in words what will run.

use crate::view::bars::status;
use crate::view::learn::hidden::is_open;
use crate::view::prelude::*;
use draftscope_learn::lesson::{Panel, Run};

/// The panels of the step on show, as far as there is something to show.
pub(in crate::view) fn panels(screen: Screen) -> Vec<Option<Panel>> {
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
        all.map(|panel| Some(*panel).filter(|panel| has_run || !panel.is_of_run())).collect();
    let first = panels.iter().position(Option::is_none);
    let mut index = 0;
    panels.retain(|panel| {
        index += 1;
        panel.is_some() || Some(index - 1) == first
    });
    panels
}

/// What will run, in words.
pub(super) fn what_runs(screen: Screen, width: u16) -> Vec<Line<'static>> {
    let Some(run) = screen.app.learning.run() else { return Vec::new() };
    let is_here = screen.app.learning.step().is_some_and(|step| step.run.is_some());
    let text = match (is_here, screen.app.learning.study.is_revealed) {
        (true, true) if run.threads > 0 => {
            "It is answered on all threads first; then its rounds appear here.".to_owned()
        }
        (true, true) => "The prompt is being read: its first round appears here.".to_owned(),
        (true, false) => format!("{} runs {}", screen.app.key(Action::Open), in_words(run)),
        _ => format!("Not run yet: {} goes back to the step that runs {}", screen.app.key(Action::Left), in_words(run)),
    };
    wrapped(&text, width, screen.theme[Role::TextDim])
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
        "“{}”{raw}: k = {k}, drafter {drafter}, rule {}{temperature}, {} at most. {beside}{threads}",
        run.prompt,
        run.rule,
        counted(run.tokens as usize, "token")
    )
}
