//! The quiz: the verdict on drafts of the session.

use crate::protocol::{Command, Outcome};
use crate::session::{Round, Session, Timeline};
use crate::tui::app::App;
use crate::tui::lesson::Step;
use crate::tui::selection::{RoundAt, round_at, rounds};

use super::super::navigation;

/// Chooses the draft that the step on show asks about, if it is one of the quiz.
pub(super) fn begin(app: &mut App, time: &Timeline) {
    let session = time.shown();
    let asked = app.lesson.asked;
    let is_quiz = app.lesson.at(&app.lessons).is_some_and(|(_, step)| step.quiz);
    app.lesson.quiz = is_quiz.then(|| quiz_round(session, asked)).flatten();
    if let Some((at, index)) = app.lesson.quiz {
        navigation::choose(app, at, Some(index));
    }
}

/// Enter: answers, or asks the next one.
pub(super) fn enter(app: &mut App, time: &mut Timeline, step: &Step) -> Vec<Command> {
    let again = app.lesson.step;
    if app.lesson.is_revealed {
        super::turn_to(app, time, again);
        return Vec::new();
    }
    if app.lesson.quiz.is_none() {
        super::turn_to(app, time, again);
        if app.lesson.quiz.is_none() {
            app.toast = Some("the quiz needs some rounds: run a prompt in Chat first".to_owned());
        }
        return Vec::new();
    }
    if let Some(right) = app.lesson.right_choice(step, time.shown(), None) {
        app.lesson.is_revealed = true;
        app.lesson.asked += 1;
        app.lesson.right += u32::from(app.lesson.choice == right);
    }
    Vec::new()
}

/// A draft of the session that was judged, another one for each number.
fn quiz_round(session: &Session, number: u32) -> Option<(RoundAt, usize)> {
    let judged = |round: &Round| {
        let told = |index: &usize| matches!(round.outcome(*index), Some(Outcome::Accepted | Outcome::Rejected));
        (0..round.drafts.len()).filter(told).collect::<Vec<_>>()
    };
    let asks = |at: &RoundAt| round_at(session, *at).is_some_and(|r| r.is_complete && !judged(r).is_empty());
    let all: Vec<_> = rounds(session).filter(asks).collect();
    // a step that shares no factor with most counts, so that neighbours do not follow each other
    let at = *all.get((number as usize).wrapping_mul(7919).checked_rem(all.len())?)?;
    let judged = judged(round_at(session, at)?);
    Some((at, *judged.get((number as usize).checked_rem(judged.len())?)?))
}
