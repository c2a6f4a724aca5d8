//! The tour, and the loading bar.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent};

use crate::app::App;
use crate::page::{Page, Pane};
use crate::tour::{SECONDS, stop};
use draftscope_session::Timeline;

/// Time between two ticks of the tour.
pub(super) const TICK: Duration = Duration::from_secs(1);

/// Begins the tour, which is about the first page; it ends at the prompt.
pub(super) fn begin(app: &mut App, time: &Timeline) {
    if app.is_recording || app.aside.is_some() {
        app.toast = Some("the tour shows a live session, and this is a recording".to_owned());
        return;
    }
    app.go_to(Page::Chat);
    if !app.is_busy(time.live()) {
        app.pane = Pane::Prompt;
    }
    (app.overlay, app.is_zoomed, app.tour) = (None, false, Some(0));
}

/// Goes to the next stop of the tour, or ends it on any other key; returns whether the key is used up.
pub(super) fn press(app: &mut App, key: KeyEvent) -> bool {
    let Some(seconds) = app.tour.take() else {
        return false;
    };
    match key.code {
        KeyCode::Right | KeyCode::Char(' ') => {
            let next = (seconds / SECONDS + 1) * SECONDS;
            app.tour = Some(next).filter(|seconds| stop(*seconds).is_some());
            true
        }
        code => matches!(code, KeyCode::Esc | KeyCode::Enter),
    }
}

/// Advances the tour by a second, or the loading bar.
pub(super) fn tick(app: &mut App) {
    match app.tour {
        Some(seconds) => app.tour = Some(seconds + 1).filter(|seconds| stop(*seconds).is_some()),
        None => app.loading_ticks = app.loading_ticks.wrapping_add(1),
    }
}

/// Begins the tour if the caller wants one: at a first start, on a screen that waits for a prompt.
pub(super) fn greet(app: &mut App, time: &Timeline) {
    let is_empty = time.live().turns().is_empty() && app.options.initial_prompt.is_none() && app.editor.is_empty();
    if let Some(first) = app.options.tour.take().filter(|_| is_empty && app.page == Page::Chat) {
        (first.0)();
        begin(app, time);
    }
}
