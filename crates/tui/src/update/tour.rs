//! The tour, and the loading bar.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent};

use crate::app::App;
use crate::app::clock::tour::{SECONDS, STOPS, stop};
use crate::app::place::page::{Page, Pane};
use draftscope_protocol::Lane;
use draftscope_session::Timeline;

use super::recording;

/// Time between two ticks of the tour.
pub(super) const TICK: Duration = Duration::from_secs(1);

/// Begins the tour, which is about the first page; it ends at the prompt. Before the first answer it is about a
/// recording of the real engine, since empty panes explain nothing.
pub(super) fn begin(app: &mut App, time: &mut Timeline) {
    if app.learning.aside.is_some() && !app.learning.shows_recording() {
        app.toast = Some("the tour shows your own session: leave the lesson first".to_owned());
        return;
    }
    if app.clock.is_recording || app.learning.aside.is_some() {
        app.toast = Some("the tour shows a live session, and this is a recording".to_owned());
        return;
    }
    app.go_to(Page::Chat);
    let live = time.live();
    let has_rounds = live.turns().iter().any(|turn| !turn.answer(Lane::Speculative).rounds.is_empty());
    if !app.is_busy(live) {
        if !has_rounds && recording::has_recordings(app) && recording::show(app, time, recording::DEMO) {
            time.follow();
        }
        app.place.pane = Pane::Prompt;
    }
    (app.place.overlay, app.place.is_zoomed, app.clock.tour) = (None, false, Some(0));
}

/// Ends the tour, if it runs.
pub(super) fn end(app: &mut App, time: &mut Timeline) {
    if app.clock.tour.take().is_some() {
        return_example(app, time);
    }
}

/// Shows the own run again, and the prompt.
fn return_example(app: &mut App, time: &mut Timeline) {
    if app.learning.is_demo() {
        app.end_recording(time);
        app.place.pane = Pane::Prompt;
    }
}

/// Goes to the stop after so many seconds; the last one is about the prompt, which recordings do not have.
fn go(app: &mut App, time: &mut Timeline, seconds: usize) {
    app.clock.tour = Some(seconds).filter(|seconds| stop(*seconds).is_some());
    if seconds >= SECONDS * (STOPS.len() - 1) {
        return_example(app, time);
    }
}

/// Goes to the next stop of the tour, or ends it on any other key; returns whether the key is used up.
pub(super) fn press(app: &mut App, time: &mut Timeline, key: KeyEvent) -> bool {
    let Some(seconds) = app.clock.tour else {
        return false;
    };
    match key.code {
        KeyCode::Right | KeyCode::Char(' ') => {
            go(app, time, (seconds / SECONDS + 1) * SECONDS);
            true
        }
        code => {
            end(app, time);
            matches!(code, KeyCode::Esc | KeyCode::Enter)
        }
    }
}

/// Advances the tour by a second, or the loading bar.
pub(super) fn tick(app: &mut App, time: &mut Timeline) {
    match app.clock.tour {
        Some(seconds) => go(app, time, seconds + 1),
        None => app.clock.loading_ticks = app.clock.loading_ticks.wrapping_add(1),
    }
}

/// Begins the tour if the caller wants one: at a first start, on a screen that waits for a prompt.
pub(super) fn greet(app: &mut App, time: &mut Timeline) {
    let is_empty = time.live().turns().is_empty() && app.options.initial_prompt.is_none() && app.talk.editor.is_empty();
    if let Some(first) = app.options.tour.take().filter(|_| is_empty && app.place.page == Page::Chat) {
        (first.0)();
        begin(app, time);
    }
}
