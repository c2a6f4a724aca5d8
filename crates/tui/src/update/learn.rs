//! Keys in the lessons.

mod goal;
mod run;
pub(super) mod steps;

use crate::app::App;
use crate::app::learning::lesson_row::{ListRow, list_rows};
use crate::app::learning::quiz::{Offer, Stage};
use crate::app::learning::study::Opened;
use crate::app::place::page::{Page, Pane};
use crate::input::action::Action;
use draftscope_learn::lesson::{Entry, Step, find};
use draftscope_learn::theory::{MapRow, Slider};
use draftscope_protocol::Command;
use draftscope_session::Timeline;

pub(crate) use goal::is_reached as goal_is_reached;
pub(super) use run::draft_typed;
pub(crate) use run::go_on;
use steps::{keep_progress, leave, open, tick, turn_to};

use super::quiz;

/// Steps of a slider for a key that moves by a page.
const FAR: i32 = 10;

/// Performs an action in the lessons; `None` leaves it to others.
pub(super) fn update(app: &mut App, time: &mut Timeline, action: Action) -> Option<Vec<Command>> {
    if app.is_quiz()
        && let Some(commands) = quiz::update(app, time, action)
    {
        return Some(commands);
    }
    let Some(step) = app.learning.step().cloned() else {
        app.place.pane = Pane::Lesson;
        return list(app, time, action);
    };
    if app.place.is_zoomed && turn_panels(app, action) {
        return Some(Vec::new());
    }
    if app.place.pane != Pane::Lesson {
        let asks = !step.choices.is_empty() && !app.learning.study.is_revealed;
        match action {
            Action::Leave => app.place.pane = Pane::Lesson,
            // a question keeps its keys
            Action::Up if asks => app.learning.study.choice = app.learning.study.choice.saturating_sub(1),
            Action::Down if asks => app.learning.study.choose_next(step.choices.len()),
            Action::Open if asks => return Some(enter(app, time, &step, 0)),
            _ => return None, // the round has the others, until one leaves it
        }
        return Some(Vec::new());
    }
    if step.task.is_some() && move_slider(app, &step, action) {
        return Some(Vec::new());
    }
    if step.sets_map() && change_map(app, action) {
        return Some(Vec::new());
    }
    let steps = app.learning.on_show().map_or(1, |(lesson, _)| lesson.step.len());
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

/// Whether an action is about the panels that have the whole page: it turns to others, or gives the page back. The arrows
/// scroll their text.
fn turn_panels(app: &mut App, action: Action) -> bool {
    let panel = &mut app.learning.study.panel;
    let last = app.place.hit_map.lesson_panels.saturating_sub(1);
    match action {
        Action::PageDown => *panel = (*panel + 1).min(last),
        Action::PageUp => *panel = panel.saturating_sub(1),
        Action::Leave => app.place.is_zoomed = false,
        Action::Up => app.place.scroll_to(app.place.hit_map.top.saturating_sub(1)),
        Action::Down => app.place.scroll_to(app.place.hit_map.top + 1),
        _ => return false,
    }
    true
}

/// What the step on show shows now; none where no step is on show.
pub(super) fn place(app: &App, time: &Timeline) -> Option<Opened> {
    let is_on_show = app.place.page == Page::Learn && app.learning.step().is_some_and(|step| !step.quiz);
    let moment = time.is_past().then(|| time.moment());
    is_on_show.then_some(Opened { moment, round: app.place.selected, cell: app.place.cell })
}

/// Remembers the place in the lesson if another page was opened from it.
pub(super) fn note_page(app: &mut App, place: Option<Opened>) {
    if app.place.page == Page::Learn || app.learning.study.lesson.is_none() {
        app.learning.study.opened = None;
    } else if place.is_some() {
        app.learning.study.opened = place;
    }
}

/// Whether an action on another page goes back to the lesson that opened it.
pub(super) fn leads_back(app: &App, action: Action) -> bool {
    let goes = match action {
        Action::Leave => !app.is_typing(),
        Action::Open => app.place.page == Page::Inspect,
        _ => true,
    };
    goes && app.returns_to_lesson() && !app.place.is_zoomed
}

/// Goes back from another page to the lesson, which shows what it showed before.
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
    let run = app.learning.run();
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
