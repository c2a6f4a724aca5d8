//! From step to step: a lesson is opened, its steps are turned, ticked and left.

use crate::app::App;
use crate::app::learning::lesson_row::row_of;
use crate::app::learning::study::Study;
use crate::app::place::page::{Page, Pane};
use crate::update::wanted::give_back;
use draftscope_learn::lesson::find;
use draftscope_protocol::{Capabilities, Command, Event, EventKind, Lane};
use draftscope_session::Timeline;
use draftscope_session::round_at::{RoundAt, round_at};

/// Begins a lesson.
pub(in crate::update) fn open(app: &mut App, index: usize) {
    app.learning.study = Study { lesson: Some(index), ..Study::default() };
    app.learning.study.begin(0, &app.learning.lessons);
    note_step(app);
}

/// Opens a lesson, by its name, at a step from 1.
pub(in crate::update) fn open_at(app: &mut App, time: &mut Timeline, (name, step): (&str, usize)) -> Vec<Command> {
    let Some(index) = find(&app.learning.lessons, name) else {
        return app.say(format!("there is no lesson '{name}'"));
    };
    let commands = leave(app, time, index);
    open(app, index);
    turn_to(app, time, step.saturating_sub(1));
    commands
}

pub(in crate::update) fn turn_to(app: &mut App, time: &mut Timeline, step: usize) {
    app.learning.study.begin(step, &app.learning.lessons);
    note_step(app);
    let needs_all = app
        .learning
        .on_show()
        .is_some_and(|(_, step)| step.measured.as_ref().is_some_and(|measured| !measured.fact.is_of_round()));
    let run = app.learning.run();
    let judges_draft = run.is_some_and(|run| run.draft.is_some() && run.is_over(time.live()));
    if app.learning.shows_recording() && needs_all {
        time.follow(); // what is asked is about the whole recording
        app.clock.plays = false;
    } else if judges_draft && !app.learning.shows_recording() {
        time.follow(); // the step is about the round that judged the draft, whatever was looked at before
        app.place.follow_live();
    }
    show_run(app, time);
}

/// Where runs of lessons are played, puts a run without turns on show that has the models of the lesson's first recording:
/// a figure before its run is the one that the run shows, whatever else is on show in this program.
pub(in crate::update) fn show_models(app: &mut App, time: &mut Timeline) {
    let is_wanted = app.learning.study.lesson.is_some() && app.learning.aside.is_none() && app.clock.is_recording;
    let Some((lesson, _)) = app.learning.on_show().filter(|_| is_wanted) else { return };
    let name = lesson.step.iter().find_map(|step| step.run.as_ref()?.recording.as_deref());
    let read = name.zip(app.options.recordings.as_ref()).and_then(|(name, recordings)| (recordings.0)(name).ok());
    let begins = |event: &Event| matches!(event.kind, EventKind::Started { .. });
    let Some(mut begun) = read.and_then(|events| events.into_iter().find(begins)) else { return };
    if let EventKind::Started { header } = &mut begun.kind {
        header.capabilities = Capabilities::default();
    }
    let mut run = Timeline::new();
    run.apply(begun);
    app.show_recording(time, run);
}

/// Selects a round of the step's run where a round of something else is on show.
fn show_run(app: &mut App, time: &Timeline) {
    let session = time.shown();
    let Some(turn) = app.learning.run().and_then(|run| run.turn(session)) else { return };
    let index = session.turns().iter().position(|other| other.number == turn.number);
    let last = turn.answer(Lane::Speculative).rounds.len().checked_sub(1);
    let is_on_show = app.round_index(session).map(|at| at.turn) == index;
    if let (Some(turn), Some(_), false) = (index, last, is_on_show) {
        app.place.select(RoundAt { turn, round: last }, None);
    }
    show_judged(app, time);
}

/// Selects the round that judged the user's draft, the first of its turn, unless another one is selected: it is what this
/// step and the next ones are about. While the answer is under way its newest round is on show.
pub(in crate::update) fn show_judged(app: &mut App, time: &Timeline) {
    let is_free = app.place.page == Page::Learn && app.place.pane == Pane::Lesson && app.place.selected.is_none();
    let Some(run) = app.learning.run().filter(|run| is_free && run.draft.is_some()) else {
        return;
    };
    let session = time.shown();
    let turn = run.turn(session).filter(|_| run.is_over(session)).map(|turn| turn.number);
    let index = session.turns().iter().position(|other| Some(other.number) == turn);
    let at = index.map(|turn| RoundAt { turn, round: Some(0) });
    if let Some(at) = at.filter(|at| round_at(session, *at).is_some()) {
        app.place.select(at, None);
    }
}

/// Keeps which step is on show, for the notes in another terminal.
fn note_step(app: &mut App) {
    let Some(entry) = app.learning.study.lesson.and_then(|index| app.learning.lessons.get(index)) else { return };
    if app.learning.progress.show(&entry.name, app.learning.study.step) {
        keep_progress(app);
    }
}

/// Keeps what was done in the lessons, where the caller can.
pub(in crate::update) fn keep_progress(app: &mut App) {
    let Some(kept) = &app.options.progress else { return };
    if let Err(error) = (kept.write)(&app.learning.progress.written()) {
        app.toast = Some(format!("progress was not kept: {error}"));
    }
}

/// Ticks the step on show.
pub(in crate::update) fn tick(app: &mut App) {
    let Some(entry) = app.learning.study.lesson.and_then(|index| app.learning.lessons.get(index)) else { return };
    if app.learning.progress.tick(&entry.name, &entry.lesson, app.learning.study.step) {
        keep_progress(app);
    }
}

/// Back to the list, with this lesson chosen; what the lesson set is set back.
pub(in crate::update) fn leave(app: &mut App, time: &mut Timeline, lesson: usize) -> Vec<Command> {
    let commands = end_run(app, time);
    app.learning.study = Study { choice: row_of(lesson), ..Study::default() };
    app.place.pane = Pane::Lesson;
    commands
}

/// Ends the run of the lesson on show: its answer stops, what it set is set back, and the user's own run is on show again.
pub(in crate::update) fn end_run(app: &mut App, time: &mut Timeline) -> Vec<Command> {
    let mut commands = Vec::new();
    if app.learning.runs_lesson {
        let holds = std::mem::take(&mut app.learning.study.holds) | std::mem::take(&mut app.clock.holds);
        commands.extend(holds.then_some(Command::Resume));
        commands.extend(app.is_busy(time.live()).then_some(Command::Stop));
    }
    if let Some(lent) = app.learning.study.lent.take()
        && let Some(back) = give_back(app, time.live(), lent)
    {
        app.toast = Some("the settings from before the lesson are back".to_owned());
        commands.extend(back);
    }
    (app.learning.study.drafting, app.learning.study.on_all) = (None, None);
    app.learning.study.opened = None; // its moment and its round were those of the run
    app.end_recording(time);
    commands
}
