//! Whether the engine can be asked for something now, and what is prepared for its answer.

use crate::app::App;
use crate::app::place::page::Pane;
use crate::input::action::Action;
use draftscope_protocol::{Ability, Lane};
use draftscope_session::text::one_line;
use draftscope_session::{Phase, Session};

pub(super) fn can_generate(session: &Session) -> bool {
    session.header().is_some_and(|header| header.capabilities.can_generate)
}

/// Whether a live engine can do this.
pub(super) fn can(session: &Session, ability: Ability) -> bool {
    can_generate(session) && unable(session, ability).is_none()
}

/// Why the engine cannot do something: one sentence.
pub(super) fn unable(session: &Session, ability: Ability) -> Option<String> {
    let header = session.header()?;
    let engine = header.engine.as_ref().filter(|_| !header.can(ability))?;
    Some(format!("{} cannot {}", one_line(&engine.name), ability.describe()))
}

/// What a key says that comes before the model is there.
pub(super) const STILL_LOADING: &str = "still loading";

/// Why a source does not take settings or prompts (yet).
pub(super) fn refusal(session: &Session) -> Option<&'static str> {
    match session.header() {
        None => Some(STILL_LOADING),
        Some(header) if !header.capabilities.can_generate => Some("this is a recording: it stays as it was"),
        Some(_) => None,
    }
}

/// Why a prompt cannot be sent now.
pub(super) fn cannot_send(app: &App, session: &Session) -> Option<String> {
    if app.is_busy(session) && !only_plain_runs(session) {
        Some(still_answering(app))
    } else if session.failure().is_some() || app.requests.lost.is_some() {
        Some("the engine has stopped; quit and start again".to_owned())
    } else {
        refusal(session).map(str::to_owned)
    }
}

pub(super) fn still_answering(app: &App) -> String {
    format!("still answering: {} stops it", app.key(Action::StopOrQuit))
}

/// Prepares for the coming answer.
pub(super) fn watch(app: &mut App, session: &Session) {
    app.place.follow_live();
    if app.is_typing() {
        app.place.pane = Pane::Answer; // keys stay keys until the user goes to the prompt
    }
    app.requests.stop_sent = false;
    app.clock.holds = false;
    app.clock.plays = !app.clock.pace.is_full();
    app.notices_read = session.notices_seen();
}

/// Whether only a plain lane runs whose answer can wait: a prompt goes before it.
fn only_plain_runs(session: &Session) -> bool {
    let idle = |lane| session.phase(lane) == Phase::Idle;
    idle(Lane::Speculative) && idle(Lane::Rival) && !idle(Lane::Plain)
}
