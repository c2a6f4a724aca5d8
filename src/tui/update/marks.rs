//! Bookmarks and notes: made here, told by the source, found again.
//!
//! Invariant: a mark is an event of the run like any other: what is typed leaves as a command, and only
//! what comes back is on the screen.

use crate::protocol::{Command, Landmark};
use crate::session::{Mark, Session, Timeline, text};
use crate::tui::action::Action;
use crate::tui::app::{App, Overlay, round_at, rounds};
use crate::tui::entry::Entry;

use super::{look, seek, time as clock};

pub(super) fn update(app: &mut App, time: &mut Timeline, action: Action) -> Vec<Command> {
    match action {
        Action::MarkPrevious => go(app, time, false),
        Action::MarkNext => go(app, time, true),
        _ if !takes_marks(app, time.live()) => {
            app.toast = Some("nothing runs here that could be marked".to_owned());
            Vec::new()
        }
        Action::Bookmark => {
            let round = about(app, time);
            app.toast = Some(format!("bookmark at {}", place(round)));
            vec![Command::Bookmark { round, label: String::new() }]
        }
        _ => {
            app.overlay = Some(Overlay::Note(Entry::note(), about(app, time)));
            Vec::new()
        }
    }
}

fn takes_marks(app: &App, live: &Session) -> bool {
    live.header().is_some() && live.failure().is_none() && app.lost.is_none() && !app.has_ended
}

/// The round that a mark is about: the one on show.
fn about(app: &App, time: &Timeline) -> Option<u32> {
    app.round(time.shown()).map(|round| round.round)
}

/// Where a mark stands, in words.
pub(in crate::tui) fn place(round: Option<u32>) -> String {
    round.map_or_else(|| "this moment".to_owned(), |round| format!("round {round}"))
}

/// What was typed becomes a note; nothing typed, none.
pub(super) fn note(app: &mut App, words: &str, round: Option<u32>) -> Vec<Command> {
    let words = words.trim();
    if words.is_empty() {
        return Vec::new();
    }
    app.toast = Some(format!("note on {}", place(round)));
    vec![Command::Note { text: words.to_owned(), round }]
}

/// To the nearest round before or behind the one on show that carries a mark.
fn go(app: &mut App, time: &mut Timeline, forward: bool) -> Vec<Command> {
    let here = about(app, time).unwrap_or(0);
    let marked = time.live().marks().iter().filter_map(|mark| mark.round);
    let found = if forward { marked.filter(|r| *r > here).min() } else { marked.filter(|r| *r < here).max() };
    let Some(round) = found else {
        return if forward { seek::ask(app, time, Landmark::Mark) } else { none(app) };
    };
    let words = words(time.live().marks(), round);
    let shown = time.shown();
    let place = rounds(shown).find(|at| round_at(shown, *at).is_some_and(|r| r.round == round));
    let commands = match place {
        Some(at) => {
            look::choose(app, at, None);
            Vec::new()
        }
        None => {
            let end = seek::end_of(time, round);
            clock::back(app, time, end)
        }
    };
    app.toast = Some(words);
    commands
}

fn none(app: &mut App) -> Vec<Command> {
    app.toast = Some("there is no bookmark or note before; m and a make them".to_owned());
    Vec::new()
}

/// What the marks of a round say.
pub(in crate::tui) fn words(marks: &[Mark], round: u32) -> String {
    let own = marks.iter().filter(|mark| mark.round == Some(round)).take(8);
    let said = own.map(|mark| format!("{} {}", sign(mark), text::one_line(&mark.text)).trim_end().to_owned());
    format!("round {round}: {}", said.collect::<Vec<_>>().join(" · "))
}

/// The sign of a mark.
pub(in crate::tui) const fn sign(mark: &Mark) -> char {
    if mark.is_bookmark { '★' } else { '✎' }
}
