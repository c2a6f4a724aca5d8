//! Finds a panel that would show what a question asks before it is answered.
//!
//! Invariant: what is looked at is what [`Lesson::hides`] leaves in: the step of the question, and those before it down to the
//! question before.

use super::content::{Hidden, Lesson, Panel};
use super::fact::Fact;

/// Panels that say in words or figures what there is to know of their subject: beside a question they answer it.
const EXPLAINING: [Panel; 5] = [Panel::Heads, Panel::Saving, Panel::Training, Panel::Histogram, Panel::Memory];

/// The field of the first panel that shows early what the question at `index` asks, and why; none for a step that asks nothing.
pub(super) fn shown_early(lesson: &Lesson, index: usize) -> Option<(&'static str, String)> {
    let question = &lesson.step[index];
    if !question.asks() {
        return None;
    }
    if let Some(panel) = question.show.iter().find(|panel| EXPLAINING.contains(panel)) {
        return Some(("show", format!("the panel {panel:?} answers questions: move it to after").to_lowercase()));
    }
    let before = lesson.step[..index].iter().rposition(|step| step.asks()).unwrap_or(0);
    let run = lesson.step_of_run(index);
    for at in before..=index {
        let step = &lesson.step[at];
        // a panel of another run shows other figures
        let is_about = |panel: &&Panel| !panel.is_of_run() || lesson.step_of_run(at) == run;
        let after = step.after.iter().filter(|_| at < index);
        for panel in step.show.iter().chain(after).filter(is_about) {
            let name = format!("{panel:?}").to_lowercase();
            if question.after.contains(panel) {
                return Some((
                    "after",
                    format!("step {} shows the panel {name} before this question is answered", at + 1),
                ));
            }
            let figure = question.measured.as_ref().map(|measured| measured.fact);
            let figure = figure.filter(|fact| !was_asked(lesson, index, *fact));
            if let Some(hidden) =
                figure.and_then(|fact| shows(fact, *panel)).filter(|hidden| !is_left_out(lesson, index, *hidden))
            {
                let how = hidden.map_or("leave that panel out, or move it to after".to_owned(), |part| {
                    format!("hides needs '{part:?}'").to_lowercase()
                });
                return Some(("show", format!("step {} shows the measured number in the panel {name}: {how}", at + 1)));
            }
        }
    }
    None
}

/// Whether a question before, about the same run, asked for the same number: it is known.
fn was_asked(lesson: &Lesson, index: usize, fact: Fact) -> bool {
    let run = lesson.step_of_run(index);
    let asks = |at: usize| lesson.step[at].measured.as_ref().is_some_and(|measured| measured.fact == fact);
    (0..index).any(|at| lesson.step_of_run(at) == run && asks(at))
}

fn is_left_out(lesson: &Lesson, index: usize, hidden: Option<Hidden>) -> bool {
    hidden.is_some_and(|part| lesson.step[index].hides.contains(&part))
}

/// Whether a panel shows a measured number, and the part of it that does, if that can be left out.
fn shows(fact: Fact, panel: Panel) -> Option<Option<Hidden>> {
    use Fact::{
        AllRowsMs, AllRowsSlower, BreakEven, DraftShare, FirstP, Identical, IdenticalShare, IdenticalToRival, OneRowMs,
        OneRowSlower, RatioOnAll, Speedup, VerifyRatio,
    };
    match (fact, panel) {
        (
            VerifyRatio | OneRowMs | AllRowsMs | RatioOnAll | OneRowSlower | AllRowsSlower,
            Panel::Bytes | Panel::Threads | Panel::Sliders,
        )
        | (DraftShare | Speedup, Panel::Sliders) => Some(Some(Hidden::Measured)),
        (VerifyRatio | OneRowMs | AllRowsMs | DraftShare, Panel::Costs) => Some(None),
        (Speedup | Identical | IdenticalShare | IdenticalToRival, Panel::Lanes) => Some(Some(Hidden::Agreement)),
        (Speedup, Panel::Answer | Panel::Dial) | (FirstP, Panel::Round | Panel::Distributions | Panel::Pass) => {
            Some(None)
        }
        (BreakEven, Panel::Dial) => Some(Some(Hidden::Predicted)),
        _ => None,
    }
}
