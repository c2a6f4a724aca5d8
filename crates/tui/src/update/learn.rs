//! Keys in the lessons.

mod goal;
mod run;

use crate::app::App;
use crate::app::learning::lesson_row::{ListRow, list_rows, row_of};
use crate::app::learning::quiz::{Offer, Stage};
use crate::app::learning::study::{Opened, Study};
use crate::app::place::page::{Page, Pane};
use crate::input::action::Action;
use draftscope_learn::lesson::{Entry, Step, find};
use draftscope_learn::theory::{MapRow, Slider};
use draftscope_protocol::{Command, Lane};
use draftscope_session::Timeline;
use draftscope_session::round_at::{RoundAt, round_at};

pub(crate) use goal::is_reached as goal_is_reached;
pub(crate) use run::go_on;
pub(super) use run::{DEMO, demo, draft_typed, has_recordings, show};

use super::{navigation, quiz, settings};

/// Steps of a slider for a key that moves by a page.
const FAR: i32 = 10;

/// Performs an action in the lessons; `None` leaves it to others.
pub(super) fn update(app: &mut App, time: &mut Timeline, action: Action) -> Option<Vec<Command>> {
    if app.is_quiz()
        && let Some(commands) = quiz::update(app, time, action)
    {
        return Some(commands);
    }
    let Some(step) = app.learning.study.at(&app.learning.lessons).map(|(_, step)| step.clone()) else {
        app.place.pane = Pane::Lesson;
        return list(app, time, action);
    };
    if app.place.pane != Pane::Lesson {
        let asks = !step.choices.is_empty() && !app.learning.study.is_revealed;
        match action {
            Action::Leave => app.place.pane = Pane::Lesson,
            // a question keeps its keys
            Action::Up if asks => app.learning.study.choice = app.learning.study.choice.saturating_sub(1),
            Action::Down if asks => app.learning.study.choose_next(step.choices.len()),
            Action::Open if asks => return Some(enter(app, time, &step, 0)),
            // the round has the others, until one leaves it
            Action::Open => {
                app.learning.study.opened = Some(opened(app, time));
                return None;
            }
            _ => return None,
        }
        return Some(Vec::new());
    }
    if step.task.is_some() && move_slider(app, &step, action) {
        return Some(Vec::new());
    }
    if step.sets_map() && change_map(app, action) {
        return Some(Vec::new());
    }
    let steps = app.learning.study.at(&app.learning.lessons).map_or(1, |(lesson, _)| lesson.step.len());
    match action {
        Action::Up => app.learning.study.choice = app.learning.study.choice.saturating_sub(1),
        Action::Down => app.learning.study.choose_next(step.choices.len()),
        Action::PageUp | Action::PageDown => scroll(app, action == Action::PageUp),
        Action::Left => turn_to(app, time, app.learning.study.step.saturating_sub(1)),
        Action::Right => turn_to(app, time, (app.learning.study.step + 1).min(steps - 1)),
        Action::RejectNext => app.learning.study.shows_notes = !app.learning.study.shows_notes,
        Action::Leave => return Some(leave(app, time, app.learning.study.lesson.unwrap_or(0))),
        Action::Open => return Some(enter(app, time, &step, steps)),
        _ => return None,
    }
    Some(Vec::new())
}

/// What the lesson shows now.
fn opened(app: &App, time: &Timeline) -> Opened {
    let moment = time.is_past().then(|| time.moment());
    Opened { moment, round: app.place.selected, cell: app.place.cell }
}

/// Goes back from Inspect to the lesson, which shows what it showed before.
pub(super) fn come_back(app: &mut App, time: &mut Timeline) {
    app.go_to(Page::Learn);
    app.place.pane = Pane::Lesson;
    let Some(opened) = app.learning.study.opened.take() else { return };
    match opened.moment {
        Some(moment) => time.go_to(moment),
        None if !time.live().is_generating() => time.follow(),
        None => {}
    }
    (app.place.selected, app.place.cell) = (opened.round, opened.cell);
}

fn list(app: &mut App, time: &Timeline, action: Action) -> Option<Vec<Command>> {
    let rows = list_rows(app.learning.lessons.len());
    match action {
        Action::Up => app.learning.study.choice = app.learning.study.choice.saturating_sub(1),
        Action::Down => app.learning.study.choice = (app.learning.study.choice + 1).min(rows.len() - 1),
        Action::Open | Action::Right => {
            let offer = match rows[app.learning.study.choice.min(rows.len() - 1)] {
                ListRow::Lesson(index) => {
                    open(app, index);
                    return Some(Vec::new());
                }
                ListRow::Before => Offer::Before,
                ListRow::After => Offer::After,
                ListRow::Certificate => Offer::Certificate,
            };
            let said = quiz::begin(app, time, offer);
            if let Some(index) =
                app.learning.lessons.iter().position(is_quiz).filter(|_| app.learning.quiz.stage != Stage::Home)
            {
                open(app, index);
            }
            return Some(said);
        }
        _ => return None,
    }
    Some(Vec::new())
}

fn is_quiz(entry: &Entry) -> bool {
    entry.lesson.step.iter().any(|step| step.quiz)
}

/// Stands for the list of lessons where one could be named.
const LIST: &str = "list";

/// Opens the lesson that the options name.
pub(crate) fn begin(app: &mut App) {
    let Some(wanted) = app.options.lesson.take() else { return };
    app.go_to(Page::Learn);
    match find(&app.learning.lessons, &wanted) {
        _ if wanted == LIST => {}
        Some(index) => open(app, index),
        None => app.toast = Some(format!("there is no lesson '{wanted}'")),
    }
}

/// Begins a lesson.
fn open(app: &mut App, index: usize) {
    app.learning.study = Study { lesson: Some(index), ..Study::default() };
    app.learning.study.begin(0, &app.learning.lessons);
    note_step(app);
}

/// Keeps which step is on show, for the notes in another terminal.
fn note_step(app: &mut App) {
    let Some(entry) = app.learning.study.lesson.and_then(|index| app.learning.lessons.get(index)) else { return };
    if app.learning.progress.show(&entry.name, app.learning.study.step) {
        keep_progress(app);
    }
}

/// Opens a lesson, by its name, at a step from 1.
pub(super) fn open_at(app: &mut App, time: &mut Timeline, (name, step): (&str, usize)) -> Vec<Command> {
    let Some(index) = find(&app.learning.lessons, name) else {
        return app.say(format!("there is no lesson '{name}'"));
    };
    let commands = leave(app, time, index);
    open(app, index);
    turn_to(app, time, step.saturating_sub(1));
    commands
}

fn scroll(app: &mut App, up: bool) {
    let page = app.place.hit_map.page.max(2) / 2;
    let now = app.learning.study.scroll.unwrap_or(app.place.hit_map.lesson_max);
    let next = if up { now.saturating_sub(page) } else { now + page };
    app.learning.study.scroll = (next < app.place.hit_map.lesson_max).then_some(next);
}

/// What an action does to rows of which one is chosen.
enum Moved {
    /// It chose this row.
    To(usize),
    /// It changes the chosen one by so many steps.
    By(i32),
}

/// What an action does to `rows` rows; none if it is about something else.
fn moved(chosen: usize, rows: usize, action: Action) -> Option<Moved> {
    Some(match action {
        Action::Up => Moved::To(chosen.saturating_sub(1)),
        Action::Down => Moved::To((chosen + 1).min(rows - 1)),
        Action::DraftLenUp => Moved::By(1),
        Action::DraftLenDown => Moved::By(-1),
        Action::PageUp => Moved::By(FAR),
        Action::PageDown => Moved::By(-FAR),
        _ => return None,
    })
}

/// Whether an action changed the map, or chose a row of what it is drawn for.
fn change_map(app: &mut App, action: Action) -> bool {
    let chosen = app.learning.study.slider.min(MapRow::ALL.len() - 1);
    match moved(chosen, MapRow::ALL.len(), action) {
        None => return false,
        Some(Moved::To(row)) => app.learning.study.slider = row,
        Some(Moved::By(steps)) => app.learning.study.map.turn(MapRow::ALL[chosen], steps),
    }
    true
}

/// Whether an action moved a slider, or chose one.
fn move_slider(app: &mut App, step: &Step, action: Action) -> bool {
    let chosen = app.learning.study.slider.min(Slider::ALL.len() - 1);
    let steps = match moved(chosen, Slider::ALL.len(), action) {
        None => return false,
        Some(Moved::To(row)) => {
            app.learning.study.slider = row;
            return true;
        }
        Some(Moved::By(steps)) => steps,
    };
    let slider = Slider::ALL[chosen];
    if step.task.as_ref().is_some_and(|task| task.free.contains(&slider)) {
        app.learning.study.sliders.turn(slider, steps);
    } else {
        app.toast = Some(format!("{} is fixed in this task", slider.name()));
    }
    true
}

fn turn_to(app: &mut App, time: &mut Timeline, step: usize) {
    app.learning.study.begin(step, &app.learning.lessons);
    note_step(app);
    let needs_all = app
        .learning
        .study
        .at(&app.learning.lessons)
        .is_some_and(|(_, step)| step.measured.as_ref().is_some_and(|measured| !measured.fact.is_of_round()));
    let run = app.learning.study.run(&app.learning.lessons);
    let judges_draft = run.is_some_and(|run| run.draft.is_some() && run.is_over(time.live()));
    if app.learning.shows_recording() && needs_all {
        time.follow(); // what is asked is about the whole recording
        app.clock.plays = false;
    } else if judges_draft && !app.learning.shows_recording() {
        time.follow(); // the step is about the round that judged the draft, whatever was looked at before
        navigation::follow_live(app);
    }
    show_run(app, time);
}

/// Selects a round of the step's run where a round of something else is on show.
fn show_run(app: &mut App, time: &Timeline) {
    let session = time.shown();
    let Some(turn) = app.learning.study.run(&app.learning.lessons).and_then(|run| run.turn(session)) else { return };
    let index = session.turns().iter().position(|other| other.number == turn.number);
    let last = turn.answer(Lane::Speculative).rounds.len().checked_sub(1);
    let is_on_show = app.round_index(session).map(|at| at.turn) == index;
    if let (Some(turn), Some(_), false) = (index, last, is_on_show) {
        navigation::choose(app, RoundAt { turn, round: last }, None);
    }
    show_judged(app, time);
}

/// Selects the round that judged the user's draft, the first of its turn, unless another one is selected: it is what this
/// step and the next ones are about. While the answer is under way its newest round is on show.
pub(super) fn show_judged(app: &mut App, time: &Timeline) {
    let is_free = app.place.page == Page::Learn && app.place.pane == Pane::Lesson && app.place.selected.is_none();
    let Some(run) = app.learning.study.run(&app.learning.lessons).filter(|run| is_free && run.draft.is_some()) else {
        return;
    };
    let session = time.shown();
    let turn = run.turn(session).filter(|_| run.is_over(session)).map(|turn| turn.number);
    let index = session.turns().iter().position(|other| Some(other.number) == turn);
    let at = index.map(|turn| RoundAt { turn, round: Some(0) });
    if let Some(at) = at.filter(|at| round_at(session, *at).is_some()) {
        navigation::choose(app, at, None);
    }
}

/// Enter: run what the step runs, answer what it asks, check what it wants done, or go on.
fn enter(app: &mut App, time: &mut Timeline, step: &Step, steps: usize) -> Vec<Command> {
    if let Some(run) = step.run.as_ref().filter(|_| !app.learning.study.is_revealed) {
        return run::begin(app, time, run);
    }
    if !step.choices.is_empty() && !app.learning.study.is_revealed {
        return answer(app, time, step);
    }
    if !goal::is_reached(app, time, step) {
        app.learning.study.hints = (app.learning.study.hints + 1).min(step.all_hints().len());
        app.learning.study.scroll = None;
        return app.say("not done yet: see the hint");
    }
    tick(app);
    if app.learning.study.step + 1 < steps {
        let next = app.learning.study.step + 1;
        turn_to(app, time, next);
        return Vec::new();
    }
    let done = app.learning.study.lesson.unwrap_or(0);
    leave(app, time, (done + 1).min(app.learning.lessons.len().saturating_sub(1)))
}

/// Takes a choice. Its first answer scores; after a wrong one the user may choose again.
fn answer(app: &mut App, time: &Timeline, step: &Step) -> Vec<Command> {
    let run = app.learning.study.run(&app.learning.lessons);
    if step.measured.as_ref().is_some_and(|measured| measured.is_unknown(time.shown(), run)) {
        // nobody can be right or wrong: the step says so, and the lesson goes on
        (app.learning.study.is_revealed, app.learning.study.scroll) = (true, None);
        tick(app);
        return Vec::new();
    }
    let Some(right) = app.learning.study.right_choice(step, time.shown(), run) else {
        let is_running = time.shown().is_generating();
        let why = if is_running { "wait for the answer to end" } else { "run the prompt of this lesson first" };
        return app.say(format!("not measured yet: {why}"));
    };
    let choice = app.learning.study.choice;
    let is_right = choice == right;
    if app.learning.study.tried.is_empty()
        && let Some(entry) = app.learning.study.lesson.and_then(|index| app.learning.lessons.get(index))
    {
        app.learning.progress.answer(&entry.name, &entry.lesson, app.learning.study.step, is_right);
    }
    app.learning.study.scroll = None;
    if !is_right && !app.learning.study.tried.contains(&choice) {
        app.learning.study.tried.push(choice);
        app.learning.study.hints = app.learning.study.tried.len().min(step.all_hints().len());
    }
    // one that is left after all others is no choice any more
    if is_right || app.learning.study.tried.len() + 1 >= step.choices.len() {
        (app.learning.study.is_revealed, app.learning.study.choice) = (true, right);
        tick(app);
    }
    keep_progress(app);
    Vec::new()
}

/// Keeps what was done in the lessons, where the caller can.
fn keep_progress(app: &mut App) {
    let Some(kept) = &app.options.progress else { return };
    if let Err(error) = (kept.write)(&app.learning.progress.written()) {
        app.toast = Some(format!("progress was not kept: {error}"));
    }
}

/// Ticks the step on show.
pub(super) fn tick(app: &mut App) {
    let Some(entry) = app.learning.study.lesson.and_then(|index| app.learning.lessons.get(index)) else { return };
    if app.learning.progress.tick(&entry.name, &entry.lesson, app.learning.study.step) {
        keep_progress(app);
    }
}

/// Back to the list, with this lesson chosen; what the lesson set is set back.
fn leave(app: &mut App, time: &mut Timeline, lesson: usize) -> Vec<Command> {
    let commands = end_run(app, time);
    app.learning.study = Study { choice: row_of(lesson), ..Study::default() };
    app.place.pane = Pane::Lesson;
    commands
}

/// Ends the run of the lesson on show: its answer stops, what it set is set back, and the user's own run is on show again.
pub(super) fn end_run(app: &mut App, time: &mut Timeline) -> Vec<Command> {
    let mut commands = Vec::new();
    if app.learning.runs_lesson {
        let holds = std::mem::take(&mut app.learning.study.holds) | std::mem::take(&mut app.clock.holds);
        commands.extend(holds.then_some(Command::Resume));
        commands.extend(app.is_busy(time.live()).then_some(Command::Stop));
    }
    if let Some(lent) = app.learning.study.lent.take()
        && let Some(back) = settings::give_back(app, time.live(), lent)
    {
        app.toast = Some("the settings from before the lesson are back".to_owned());
        commands.extend(back);
    }
    app.learning.study.drafting = None;
    app.end_recording(time);
    commands
}
