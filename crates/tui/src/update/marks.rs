//! Bookmarks and notes: made here, reported by the source, found again.
//!
//! Invariant: a mark is an event of the run like any other: what is typed leaves as a command, and the screen shows
//! only what comes back.

use crate::app::place::marks::{mark_text, place_name};
use crate::app::{App, Overlay};
use crate::input::action::Action;
use crate::input::line_input::LineInput;
use draftscope_protocol::{Command, Landmark};
use draftscope_session::round_at::{places, round_at};
use draftscope_session::{PassId, Session, Timeline};

use super::{seek, time as clock};

pub(super) fn update(app: &mut App, time: &mut Timeline, action: Action) -> Vec<Command> {
    match action {
        Action::MarkPrevious => go(app, time, false),
        Action::MarkNext => go(app, time, true),
        _ if !takes_marks(app, time.live()) => app.say("nothing runs here that could be marked"),
        Action::Bookmark => {
            let place = about(app, time);
            app.toast = Some(format!("bookmark at {}", place_name(place)));
            let (round, turn) = place.map_or((None, None), PassId::parts);
            vec![Command::Bookmark { round, turn, label: String::new() }]
        }
        _ => {
            app.place.overlay = Some(Overlay::Note(LineInput::note(), about(app, time)));
            Vec::new()
        }
    }
}

fn takes_marks(app: &App, live: &Session) -> bool {
    !app.learning.shows_recording()
        && live.header().is_some()
        && live.failure().is_none()
        && app.requests.lost.is_none()
        && !app.requests.has_ended
}

/// The place that a mark is about: the shown round, or the prompt's pass.
fn about(app: &App, time: &Timeline) -> Option<PassId> {
    app.round(time.shown()).map(PassId::of)
}

/// Typed text becomes a note; an empty one is dropped.
pub(super) fn note(app: &mut App, words: &str, place: Option<PassId>) -> Vec<Command> {
    let words = words.trim();
    if words.is_empty() {
        return Vec::new();
    }
    app.toast = Some(format!("note on {}", place_name(place)));
    let (round, turn) = place.map_or((None, None), PassId::parts);
    vec![Command::Note { text: words.to_owned(), round, turn }]
}

/// Moves to the nearest marked place before or after the shown one.
fn go(app: &mut App, time: &mut Timeline, forward: bool) -> Vec<Command> {
    let here = about(app, time);
    let marked = time.live().marks().iter().filter_map(|mark| mark.place);
    let found = if forward {
        marked.filter(|place| Some(*place) > here).min()
    } else {
        marked.filter(|place| Some(*place) < here).max()
    };
    let Some(place) = found else {
        return if forward { seek::ask(app, time, Landmark::Mark) } else { none(app) };
    };
    let words = mark_text(time.live().marks(), place);
    let shown = time.shown();
    let at = places(shown).find(|at| round_at(shown, *at).is_some_and(|round| PassId::of(round) == place));
    let commands = match at {
        Some(at) => {
            app.place.select(at, None);
            Vec::new()
        }
        None => {
            let end = time.round_end(place.turn, place.round);
            clock::back(app, time, end)
        }
    };
    app.toast = Some(words);
    commands
}

fn none(app: &mut App) -> Vec<Command> {
    let (mark, note) = (app.key(Action::Bookmark), app.key(Action::Note));
    app.toast = Some(format!("there is no bookmark or note before; {mark} and {note} make them"));
    Vec::new()
}
