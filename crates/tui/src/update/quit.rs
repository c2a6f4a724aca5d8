//! Quitting: Ctrl+C first stops an answer, then clears a typed prompt, then quits; an unsaved session asks.

use crate::app::clock::pace::Pace;
use crate::app::{App, Ask, Overlay};
use crate::input::action::Action;
use draftscope_protocol::{Command, Lane};
use draftscope_session::Timeline;

pub(super) fn stop_or_quit(app: &mut App, time: &Timeline) -> Vec<Command> {
    let session = time.live();
    let can_stop = !app.clock.is_recording && session.failure().is_none() && app.requests.lost.is_none();
    if app.is_busy(session) && can_stop && !app.requests.stop_sent {
        app.requests.stop_sent = true;
        app.clock.plays = false;
        if app.clock.pace == Pace::Ramp {
            app.clock.pace = Pace::Full; // the answer that starts slow has been seen
        }
        let in_round = session.turn().is_some_and(|turn| !turn.answer(Lane::Speculative).tokens.is_empty());
        let when = if in_round { "stopping after this round" } else { "stopping" };
        app.toast = Some(format!("{when}; {} again quits", app.key(Action::StopOrQuit)));
        return vec![Command::Stop];
    }
    if !app.talk.editor.is_empty() && app.place.overlay.is_none() {
        app.talk.editor.take();
        let (recalls, quits) = (app.key(Action::HistoryPrevious), app.key(Action::StopOrQuit));
        return app.say(format!("the prompt is cleared: {recalls} recalls it, {quits} again quits"));
    }
    quit(app, time)
}

/// Quits; unsaved answers are saved if the user set that, else the program asks.
pub(super) fn quit(app: &mut App, time: &Timeline) -> Vec<Command> {
    if !app.is_unsaved(time) || app.place.overlay == Some(Overlay::Quit) {
        return at_once(app);
    }
    if app.leaving.autosave {
        app.requests.asks.push(Ask::SaveAndQuit);
    } else {
        app.place.overlay = Some(Overlay::Quit);
    }
    Vec::new()
}

pub(super) fn at_once(app: &mut App) -> Vec<Command> {
    app.leaving.quits = true;
    vec![Command::Shutdown]
}
