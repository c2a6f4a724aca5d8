//! Keys in the lessons.

mod goal;
mod run;

use crate::action::Action;
use crate::app::App;
use crate::lesson::{Entry, ListRow, MapRow, Slider, Step, Study, find, list_rows, row_of};
use crate::page::{Page, Pane};
use crate::quiz::{Offer, Stage};
use crate::selection::{RoundAt, round_at};
use draftscope_protocol::{Command, Lane};
use draftscope_session::Timeline;

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
    let Some(step) = app.lesson.at(&app.lessons).map(|(_, step)| step.clone()) else {
        app.pane = Pane::Lesson;
        return list(app, time, action);
    };
    if app.pane != Pane::Lesson {
        // the round has the keys, until one leaves it
        return (action == Action::Leave && app.selected.is_none()).then(|| {
            app.pane = Pane::Lesson;
            Vec::new()
        });
    }
    if step.task.is_some() && move_slider(app, &step, action) {
        return Some(Vec::new());
    }
    if step.sets_map() && change_map(app, action) {
        return Some(Vec::new());
    }
    let steps = app.lesson.at(&app.lessons).map_or(1, |(lesson, _)| lesson.step.len());
    match action {
        Action::Up => app.lesson.choice = app.lesson.choice.saturating_sub(1),
        Action::Down => {
            let last = step.choices.len().saturating_sub(1);
            app.lesson.choice = (app.lesson.choice + 1).min(last);
        }
        Action::PageUp | Action::PageDown => scroll(app, action == Action::PageUp),
        Action::Left => turn_to(app, time, app.lesson.step.saturating_sub(1)),
        Action::Right => turn_to(app, time, (app.lesson.step + 1).min(steps - 1)),
        Action::RejectNext => app.lesson.shows_notes = !app.lesson.shows_notes,
        Action::Leave => return Some(leave(app, time, app.lesson.lesson.unwrap_or(0))),
        Action::Open => return Some(enter(app, time, &step, steps)),
        _ => return None,
    }
    Some(Vec::new())
}

fn list(app: &mut App, time: &Timeline, action: Action) -> Option<Vec<Command>> {
    let rows = list_rows(app.lessons.len());
    match action {
        Action::Up => app.lesson.choice = app.lesson.choice.saturating_sub(1),
        Action::Down => app.lesson.choice = (app.lesson.choice + 1).min(rows.len() - 1),
        Action::Open | Action::Right => {
            let offer = match rows[app.lesson.choice.min(rows.len() - 1)] {
                ListRow::Lesson(index) => {
                    open(app, index);
                    return Some(Vec::new());
                }
                ListRow::Before => Offer::Before,
                ListRow::After => Offer::After,
                ListRow::Certificate => Offer::Certificate,
            };
            let said = quiz::begin(app, time, offer);
            if let Some(index) = app.lessons.iter().position(is_quiz).filter(|_| app.quiz.stage != Stage::Home) {
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
    match find(&app.lessons, &wanted) {
        _ if wanted == LIST => {}
        Some(index) => open(app, index),
        None => app.toast = Some(format!("there is no lesson '{wanted}'")),
    }
}

/// Begins a lesson.
fn open(app: &mut App, index: usize) {
    app.lesson = Study { lesson: Some(index), ..Study::default() };
    app.lesson.begin(0, &app.lessons);
    note_step(app);
}

/// Keeps which step is on show, for the notes in another terminal.
fn note_step(app: &mut App) {
    let Some(entry) = app.lesson.lesson.and_then(|index| app.lessons.get(index)) else { return };
    if app.progress.show(&entry.name, app.lesson.step) {
        keep_progress(app);
    }
}

/// Opens a lesson, by its name, at a step from 1.
pub(super) fn open_at(app: &mut App, time: &mut Timeline, (name, step): (&str, usize)) -> Vec<Command> {
    let Some(index) = find(&app.lessons, name) else {
        return app.say(format!("there is no lesson '{name}'"));
    };
    let commands = leave(app, time, index);
    open(app, index);
    turn_to(app, time, step.saturating_sub(1));
    commands
}

fn scroll(app: &mut App, up: bool) {
    let page = app.hit_map.page.max(2) / 2;
    let now = app.lesson.scroll.unwrap_or(app.hit_map.lesson_max);
    let next = if up { now.saturating_sub(page) } else { now + page };
    app.lesson.scroll = (next < app.hit_map.lesson_max).then_some(next);
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
    let chosen = app.lesson.slider.min(MapRow::ALL.len() - 1);
    match moved(chosen, MapRow::ALL.len(), action) {
        None => return false,
        Some(Moved::To(row)) => app.lesson.slider = row,
        Some(Moved::By(steps)) => app.lesson.map.turn(MapRow::ALL[chosen], steps),
    }
    true
}

/// Whether an action moved a slider, or chose one.
fn move_slider(app: &mut App, step: &Step, action: Action) -> bool {
    let chosen = app.lesson.slider.min(Slider::ALL.len() - 1);
    let steps = match moved(chosen, Slider::ALL.len(), action) {
        None => return false,
        Some(Moved::To(row)) => {
            app.lesson.slider = row;
            return true;
        }
        Some(Moved::By(steps)) => steps,
    };
    let slider = Slider::ALL[chosen];
    if step.task.as_ref().is_some_and(|task| task.free.contains(&slider)) {
        app.lesson.sliders.turn(slider, steps);
    } else {
        app.toast = Some(format!("{} is fixed in this task", slider.name()));
    }
    true
}

fn turn_to(app: &mut App, time: &mut Timeline, step: usize) {
    app.lesson.begin(step, &app.lessons);
    note_step(app);
    let needs_all = app
        .lesson
        .at(&app.lessons)
        .is_some_and(|(_, step)| step.measured.as_ref().is_some_and(|measured| !measured.fact.is_of_round()));
    if app.shows_recording() && needs_all {
        time.follow(); // what is asked is about the whole recording
        app.plays = false;
    }
    show_run(app, time);
}

/// Selects a round of the step's run where a round of something else is on show.
fn show_run(app: &mut App, time: &Timeline) {
    let session = time.shown();
    let Some(turn) = app.lesson.run(&app.lessons).and_then(|run| run.turn(session)) else { return };
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
    let is_free = app.page == Page::Learn && app.pane == Pane::Lesson && app.selected.is_none();
    let Some(run) = app.lesson.run(&app.lessons).filter(|run| is_free && run.draft.is_some()) else { return };
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
    if let Some(run) = step.run.as_ref().filter(|_| !app.lesson.is_revealed) {
        return run::begin(app, time, run);
    }
    if !step.choices.is_empty() && !app.lesson.is_revealed {
        return answer(app, time, step);
    }
    if !goal::is_reached(app, time, step) {
        app.lesson.hints = (app.lesson.hints + 1).min(step.all_hints().len());
        app.lesson.scroll = None;
        return app.say("not done yet: see the hint");
    }
    tick(app);
    if app.lesson.step + 1 < steps {
        let next = app.lesson.step + 1;
        turn_to(app, time, next);
        return Vec::new();
    }
    let done = app.lesson.lesson.unwrap_or(0);
    leave(app, time, (done + 1).min(app.lessons.len().saturating_sub(1)))
}

/// Takes a choice. Its first answer scores; after a wrong one the user may choose again.
fn answer(app: &mut App, time: &Timeline, step: &Step) -> Vec<Command> {
    let run = app.lesson.run(&app.lessons);
    if step.measured.as_ref().is_some_and(|measured| measured.is_unknown(time.shown(), run)) {
        // nobody can be right or wrong: the step says so, and the lesson goes on
        (app.lesson.is_revealed, app.lesson.scroll) = (true, None);
        tick(app);
        return Vec::new();
    }
    let Some(right) = app.lesson.right_choice(step, time.shown(), run) else {
        let is_running = time.shown().is_generating();
        let why = if is_running { "wait for the answer to end" } else { "run the prompt of this lesson first" };
        return app.say(format!("not measured yet: {why}"));
    };
    let choice = app.lesson.choice;
    let is_right = choice == right;
    if app.lesson.tried.is_empty()
        && let Some(entry) = app.lesson.lesson.and_then(|index| app.lessons.get(index))
    {
        app.progress.answer(&entry.name, &entry.lesson, app.lesson.step, is_right);
    }
    app.lesson.scroll = None;
    if !is_right && !app.lesson.tried.contains(&choice) {
        app.lesson.tried.push(choice);
        app.lesson.hints = app.lesson.tried.len().min(step.all_hints().len());
    }
    // one that is left after all others is no choice any more
    if is_right || app.lesson.tried.len() + 1 >= step.choices.len() {
        (app.lesson.is_revealed, app.lesson.choice) = (true, right);
        tick(app);
    }
    keep_progress(app);
    Vec::new()
}

/// Keeps what was done in the lessons, where the caller can.
fn keep_progress(app: &mut App) {
    let Some(kept) = &app.options.progress else { return };
    if let Err(error) = (kept.write)(&app.progress.written()) {
        app.toast = Some(format!("progress was not kept: {error}"));
    }
}

/// Ticks the step on show.
pub(super) fn tick(app: &mut App) {
    let Some(entry) = app.lesson.lesson.and_then(|index| app.lessons.get(index)) else { return };
    if app.progress.tick(&entry.name, &entry.lesson, app.lesson.step) {
        keep_progress(app);
    }
}

/// Back to the list, with this lesson chosen; what the lesson set is set back.
fn leave(app: &mut App, time: &mut Timeline, lesson: usize) -> Vec<Command> {
    let commands = end_run(app, time);
    app.lesson = Study { choice: row_of(lesson), ..Study::default() };
    app.pane = Pane::Lesson;
    commands
}

/// Ends the run of the lesson on show: its answer stops, what it set is set back, and the user's own run is on show again.
pub(super) fn end_run(app: &mut App, time: &mut Timeline) -> Vec<Command> {
    let mut commands = Vec::new();
    if app.runs_lesson {
        let holds = std::mem::take(&mut app.lesson.holds) | std::mem::take(&mut app.holds);
        commands.extend(holds.then_some(Command::Resume));
        commands.extend(app.is_busy(time.live()).then_some(Command::Stop));
    }
    if let Some(lent) = app.lesson.lent.take()
        && let Some(back) = settings::give_back(app, time.live(), lent)
    {
        app.toast = Some("the settings from before the lesson are back".to_owned());
        commands.extend(back);
    }
    (app.lesson.drafting, app.lesson.on_all) = (None, None);
    app.end_recording(time);
    commands
}
