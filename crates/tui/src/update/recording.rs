//! Recordings of the real engine, shown in place of the user's own run.

use crate::app::App;
use crate::app::place::page::Page;
use crate::input::action::Action;
use draftscope_protocol::{Capabilities, Command, EventKind};
use draftscope_session::Timeline;

/// The recording that the empty screen offers.
pub(super) const DEMO: &str = "code";

/// How fast it plays: the engine made some two hundred rounds a second.
const DEMO_SPEED: f32 = 0.02;

/// Plays a recording of the real engine in place of the own run, or ends it.
pub(super) fn demo(app: &mut App, time: &mut Timeline) -> Vec<Command> {
    if app.learning.is_demo() {
        app.end_recording(time);
        app.place.pane = app.place.page.panes()[0];
        return Vec::new();
    }
    let refusal = match () {
        () if app.learning.shows_recording() => Some("the lesson plays a recording already"),
        () if app.clock.is_recording => Some("this is a recording already"),
        () if app.is_busy(time.live()) => Some("an answer is under way: stop it first"),
        () => None,
    };
    if let Some(refusal) = refusal {
        return app.say(refusal);
    }
    app.go_to(Page::Chat);
    if show(app, time, DEMO) {
        (app.clock.plays, app.clock.playback.speed) = (true, DEMO_SPEED);
        app.follow(time.live());
        let (hold, leave) = (app.key(Action::PauseResume), app.key(Action::Leave));
        app.toast = Some(format!("a recording of the real engine plays slowly: {hold} pauses it, {leave} returns"));
    }
    Vec::new()
}

/// Whether there are recordings to show.
pub(super) fn has_recordings(app: &App) -> bool {
    app.options.recordings.is_some()
}

/// Puts a recording on show in place of the own run, at its start; whether there is one.
pub(super) fn show(app: &mut App, time: &mut Timeline, name: &str) -> bool {
    let read = app.options.recordings.as_ref().map(|recordings| (recordings.0)(name));
    let events = match read {
        Some(Ok(events)) => events,
        Some(Err(error)) => {
            app.toast = Some(error);
            return false;
        }
        None => {
            app.toast = Some("this needs an engine: run draftscope without a recording".to_owned());
            return false;
        }
    };
    let ends_at_us = events.last().map(|event| event.at_us);
    let mut recording = Timeline::new();
    for mut event in events {
        if let EventKind::Started { header } = &mut event.kind {
            header.capabilities = Capabilities { ends_at_us, ..Capabilities::default() };
        }
        recording.apply(event);
    }
    recording.go(recording.start());
    app.show_recording(time, recording);
    true
}
