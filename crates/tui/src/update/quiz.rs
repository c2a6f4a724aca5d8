//! Keys in the quiz.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::app::App;
use crate::app::learning::quiz::{OFFERS, Offer, Stage};
use crate::input::action::Action;
use draftscope_learn::quiz::{Finished, Run, Sitting, Truth, certificate, statements};
use draftscope_protocol::{Command, Outcome};
use draftscope_session::Timeline;

use super::learn::steps;

/// Does what an action says in the quiz; none leaves it to the lessons.
pub(super) fn update(app: &mut App, time: &mut Timeline, action: Action) -> Option<Vec<Command>> {
    match app.learning.quiz.stage {
        Stage::Home => home(app, time, action),
        Stage::Item => item(app, time, action),
        Stage::Statement => statement(app, time, action),
        Stage::Certificate => finished(app, time, action),
    }
}

fn keep(app: &mut App) {
    let Some(files) = &app.options.quiz else { return };
    if let Err(error) = (files.keep)(&app.learning.quiz.results.text()) {
        app.toast = Some(error);
    }
}

fn done() -> Option<Vec<Command>> {
    Some(Vec::new())
}

fn home(app: &mut App, time: &mut Timeline, action: Action) -> Option<Vec<Command>> {
    let quiz = &mut app.learning.quiz;
    match action {
        Action::Up => quiz.choice = quiz.choice.saturating_sub(1),
        Action::Down => quiz.choice = (quiz.choice + 1).min(OFFERS.len() - 1),
        Action::Confirm => {
            let offer = OFFERS[quiz.choice.min(OFFERS.len() - 1)];
            return Some(begin(app, time, offer));
        }
        _ => return None,
    }
    done()
}

/// Begins what the quiz offers, or goes on with it.
pub(super) fn begin(app: &mut App, time: &Timeline, offer: Offer) -> Vec<Command> {
    let quiz = &mut app.learning.quiz;
    quiz.choice = OFFERS.iter().position(|other| *other == offer).unwrap_or(0);
    match offer {
        offer @ (Offer::Before | Offer::After) => {
            let is_after = offer == Offer::After;
            if quiz.sitting.as_ref().is_none_or(|sitting| sitting.is_after != is_after) {
                quiz.sitting = Some(Sitting::new(is_after));
            }
            quiz.stage = Stage::Statement;
        }
        Offer::Quiz => {
            if quiz.run.is_none() {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                quiz.run = Some(Run::new(time.shown(), now.as_nanos() as u64));
            }
            quiz.stage = Stage::Item;
        }
        Offer::Certificate if quiz.results.quiz.is_empty() => {
            return app.say("finish a quiz first: it has ten items");
        }
        Offer::Certificate => (quiz.stage, quiz.line) = (Stage::Certificate, 0),
    }
    Vec::new()
}

fn item(app: &mut App, time: &mut Timeline, action: Action) -> Option<Vec<Command>> {
    if action == Action::Leave {
        app.learning.quiz.stage = Stage::Home;
        return done();
    }
    let Some(run) = &mut app.learning.quiz.run else {
        app.learning.quiz.stage = Stage::Home;
        return done();
    };
    let drafts = run.order.len();
    match action {
        Action::Up => run.go_to(run.cursor.saturating_sub(1)),
        Action::Down => run.go_to(run.cursor + 1),
        // between the drafts alone
        Action::Left => run.go_to(run.cursor.min(drafts).saturating_sub(1)),
        Action::Right => run.go_to((run.cursor + 1).min(drafts.saturating_sub(1))),
        Action::MarkAccepted => run.mark(Outcome::Accepted),
        Action::MarkRejected => run.mark(Outcome::Rejected),
        Action::MarkNotReached => run.mark(Outcome::NotReached),
        Action::NextVerdict => run.mark_next(),
        Action::OpenLesson => {
            let belief = run.answered().and_then(|given| given.beliefs.first().copied());
            return Some(match belief {
                Some(belief) => steps::open_at(app, time, belief.lesson()),
                None => app.say("a wrong answer that fits a belief has a lesson"),
            });
        }
        Action::Confirm if run.answered().is_some() => {
            if let Some(finished) = run.go_on() {
                app.learning.quiz.results.add(finished);
                (app.learning.quiz.run, app.learning.quiz.stage, app.learning.quiz.line) =
                    (None, Stage::Certificate, 0);
                keep(app);
                steps::tick(app);
            }
        }
        Action::Confirm => {
            if let Err(missing) = run.submit() {
                return Some(app.say(missing));
            }
        }
        _ => return None,
    }
    done()
}

fn statement(app: &mut App, time: &mut Timeline, action: Action) -> Option<Vec<Command>> {
    if action == Action::Leave {
        app.learning.quiz.stage = Stage::Home;
        return done();
    }
    let all = statements();
    let Some((sitting, statement)) = app
        .learning
        .quiz
        .sitting
        .as_mut()
        .and_then(|sitting| all.get(sitting.at).map(|statement| (sitting, statement)))
    else {
        app.learning.quiz.stage = Stage::Home;
        return done();
    };
    let is_revealed = sitting.is_revealed();
    match action {
        Action::Up | Action::Left if !is_revealed => sitting.choice = sitting.choice.saturating_sub(1),
        Action::Down | Action::Right if !is_revealed => sitting.choice = (sitting.choice + 1).min(Truth::ALL.len() - 1),
        Action::Up | Action::Left | Action::Down | Action::Right => {}
        Action::OpenLesson if is_revealed => {
            return Some(steps::open_at(app, time, (&statement.lesson, statement.step)));
        }
        Action::Confirm if is_revealed => next_statement(app, all.len()),
        Action::Confirm => {
            sitting.answers.push(Truth::ALL[sitting.choice.min(Truth::ALL.len() - 1)]);
            if !sitting.is_after {
                next_statement(app, all.len());
            }
        }
        _ => return None,
    }
    done()
}

/// After the last one the answers are kept: of those after the lessons the first, since the right ones are known then.
fn next_statement(app: &mut App, count: usize) {
    let Some(sitting) = app.learning.quiz.sitting.as_mut() else { return };
    (sitting.at, sitting.choice) = (sitting.at + 1, 0);
    if sitting.at < count {
        return;
    }
    let sitting = app.learning.quiz.sitting.take().unwrap_or_default();
    let results = &mut app.learning.quiz.results;
    let knows_answers = !results.after.is_empty();
    let again = "the right answers were on screen before, so these answers are not kept";
    match sitting.is_after {
        true if knows_answers => app.toast = Some(again.to_owned()),
        false if knows_answers => app.toast = Some(again.to_owned()),
        true => results.after = sitting.answers,
        false => results.before = sitting.answers,
    }
    app.learning.quiz.stage = Stage::Home;
    keep(app);
}

fn finished(app: &mut App, time: &mut Timeline, action: Action) -> Option<Vec<Command>> {
    let beliefs = app.learning.quiz.results.quiz.last().map_or(Vec::new(), Finished::beliefs);
    match action {
        Action::Up => app.learning.quiz.line = app.learning.quiz.line.saturating_sub(1),
        Action::Down => app.learning.quiz.line = (app.learning.quiz.line + 1).min(beliefs.len().saturating_sub(1)),
        Action::OpenLesson => {
            return Some(match beliefs.get(app.learning.quiz.line) {
                Some((belief, _)) => steps::open_at(app, time, belief.lesson()),
                None => app.say("no wrong answer fits a belief"),
            });
        }
        Action::Save => {
            let text = certificate(&app.learning.quiz.results).unwrap_or_default();
            let written = app.options.quiz.as_ref().map(|files| (files.write_certificate)(&text));
            let reply = written.unwrap_or_else(|| Err("files cannot be written from here".to_owned()));
            return Some(app.say(reply.unwrap_or_else(|error| error)));
        }
        Action::Confirm | Action::Leave => app.learning.quiz.stage = Stage::Home,
        _ => return None,
    }
    done()
}
