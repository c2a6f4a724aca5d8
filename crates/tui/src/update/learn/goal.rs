//! Whether what a step wants done is done: seen in what is on show, not in which keys were pressed.

use crate::app::App;
use draftscope_learn::lesson::{Goal, Step};
use draftscope_protocol::{Lane, Outcome};
use draftscope_session::Timeline;

/// Whether a step's goal is reached; true for a step without one.
pub(crate) fn is_reached(app: &App, time: &Timeline, step: &Step) -> bool {
    let is_set = step.task.as_ref().is_none_or(|task| {
        let [low, high] = task.speedup;
        (low..=high).contains(&app.learning.study.sliders.speedup())
    });
    is_set && step.goal.is_none_or(|goal| is_seen(app, time, goal))
}

fn is_seen(app: &App, time: &Timeline, goal: Goal) -> bool {
    let session = time.shown();
    let run = app.learning.run();
    let turn = run.and_then(|run| run.turn(session));
    if goal == Goal::Finished {
        let lanes = Lane::ALL.iter().filter_map(|lane| Some(turn?.answer(*lane)));
        let mut begun = lanes.filter(|answer| !answer.tokens.is_empty()).peekable();
        return begun.peek().is_some() && begun.all(|answer| answer.finished.is_some());
    }
    if goal == Goal::Past {
        return time.is_past();
    }
    let Some(round) = app.round(session).filter(|round| round.number() > 0) else { return false };
    if turn.is_none_or(|turn| turn.number != round.turn) {
        return false; // a round of something else
    }
    match goal {
        Goal::Drafted => round.draft_len() > 0 && round.drafts.len() >= round.draft_len().into(),
        Goal::Scored => !round.rows().is_empty(),
        Goal::Verdict => round.verdict.is_some(),
        Goal::Committed => round.is_complete(),
        // what is rolled back is seen only once the round is committed
        Goal::Rejected => round.first_discarded().is_some() && round.is_complete(),
        Goal::NotReached => app.place.cell.and_then(|cell| round.outcome(cell)) == Some(Outcome::NotReached),
        Goal::Past | Goal::Finished => false,
    }
}
