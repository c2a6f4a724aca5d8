//! From actions and keys to changes of [`App`], of the shown moment, and commands for the source.
//!
//! Invariant: the session is read, never written; a request to the engine leaves here as a [`Command`] and comes back
//! as an event, so that the screen shows what is, not what was asked for. `keymap.rs` maps keys to actions.

mod done;
mod learn;
mod marks;
mod mouse;
mod navigation;
mod overlay;
mod panels;
mod plain;
mod quit;
mod quiz;
mod recording;
mod seek;
mod sending;
mod settings;
mod time;
mod tour;
mod wanted;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use draftscope_protocol::Command;
use draftscope_session::{Session, Timeline};

use crate::app::App;
use crate::app::place::page::{Page, Pane};
use crate::app::talk::conversation;
use crate::input::action::Action;

use done::Done;
pub(super) use learn::{begin as begin_lesson, go_on as go_on_with_lesson, goal_is_reached};
pub(super) use mouse::click;
pub(super) use plain::finish_plain;
use sending::{STILL_LOADING, can_generate, cannot_send, refusal, unable, watch};
pub(super) use time::{next_tick, tick, veil};

/// Handles a key: the action bound to it, or typing.
pub fn press(app: &mut App, time: &mut Timeline, key: KeyEvent) -> Vec<Command> {
    if tour::press(app, time, key) {
        return Vec::new();
    }
    match app.keymap.action(app.context(), key) {
        Some(action) => update(app, time, action),
        None => {
            overlay::type_key(app, time, key);
            Vec::new()
        }
    }
}

/// The character that a key types into the prompt, where it does nothing else.
pub(super) fn typed(app: &App, key: KeyEvent) -> Option<char> {
    let is_plain = app.place.overlay.is_none() && app.clock.tour.is_none() && app.is_typing();
    match key.code {
        KeyCode::Char(c)
            if is_plain && !c.is_control() && !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) =>
        {
            app.keymap.action(app.context(), key).is_none().then_some(c)
        }
        _ => None,
    }
}

/// Characters that were typed into the prompt one after the other.
pub(super) fn type_text(app: &mut App, text: &str) {
    app.toast = None;
    app.talk.editor.type_text(text);
}

/// Pasted text goes into the prompt from every page; it never sends.
pub fn paste(app: &mut App, time: &mut Timeline, text: &str) {
    tour::end(app, time);
    if app.clock.is_recording {
        app.toast = Some(navigation::NO_PROMPT.to_owned());
        return;
    }
    app.place.overlay = None;
    app.place.page = Page::Chat;
    app.place.pane = Pane::Prompt;
    app.talk.editor.paste(text);
}

/// Performs an action. A page that was opened from a step of a lesson leads back to it.
pub fn update(app: &mut App, time: &mut Timeline, action: Action) -> Vec<Command> {
    let step = learn::place(app, time);
    let commands = perform(app, time, action);
    learn::note_page(app, step);
    learn::steps::show_models(app, time);
    commands
}

fn perform(app: &mut App, time: &mut Timeline, action: Action) -> Vec<Command> {
    app.toast = None;
    if app.place.overlay.is_some() {
        match overlay::update(app, time, action) {
            Done::Yes(commands) => return commands,
            Done::Run(action) => return update(app, time, action),
            Done::No => {}
        }
    }
    if let Some(why) = action.needs().and_then(|ability| unable(time.live(), ability)) {
        app.toast = Some(why);
        return Vec::new();
    }
    if app.place.page == Page::Learn
        && let Some(commands) = learn::update(app, time, action)
    {
        return commands;
    }
    match action {
        Action::Open if app.opens_prompt(time) => {
            navigation::update(app, time.shown(), Action::EditPrompt);
            Vec::new()
        }
        Action::Send => send(app, time),
        Action::StopOrQuit => quit::stop_or_quit(app, time),
        Action::Quit => quit::quit(app, time),
        Action::Tour => {
            tour::begin(app, time);
            Vec::new()
        }
        Action::Leave | Action::Open | Action::ViewLearn if learn::leads_back(app, action) => {
            learn::come_back(app, time);
            Vec::new()
        }
        Action::Demo => recording::demo(app, time),
        Action::Leave if app.learning.is_demo() => recording::demo(app, time),
        Action::DraftLenUp
        | Action::DraftLenDown
        | Action::DialUp
        | Action::DialDown
        | Action::NextRule
        | Action::TemperatureUp
        | Action::TemperatureDown
        | Action::NextBaseline => settings::change(app, time.live(), action),
        Action::ToggleLossless => settings::hold_against(app, time),
        Action::ToggleSplit => toggle_split(app, time.live()),
        Action::ContinueHere => time::continue_here(app, time),
        Action::AskRows => ask_rows(app, time.live()),
        Action::ReturnBranch => time::return_branch(app, time),
        Action::Bookmark | Action::Note | Action::MarkPrevious | Action::MarkNext => marks::update(app, time, action),
        Action::GoTo | Action::ScrubBack | Action::ScrubForward => seek::update(app, time, action),
        Action::RecordingPrevious | Action::RecordingNext => seek::recording(app, time, action),
        Action::RejectNext if seek::is_behind_all(app, time) => seek::reject(app, time),
        Action::DivergencePrevious | Action::DivergenceNext => app.say("for two recordings: draftscope diff A B --tui"),
        Action::PauseResume
        | Action::StepPhase
        | Action::StepRound
        | Action::BackPhase
        | Action::BackRound
        | Action::BackToken
        | Action::NextToken
        | Action::TimeStart
        | Action::TimeHere
        | Action::Replay
        | Action::Slower
        | Action::Faster => time::update(app, time, action),
        Action::Follow => time::follow(app, time),
        Action::Leave if time.is_past() && !app.is_typing() => time::follow(app, time),
        _ => {
            navigation::update(app, time.shown(), action);
            Vec::new()
        }
    }
}

/// Asks an attached engine for predictions; our own engine sends them with every round.
fn ask_rows(app: &mut App, session: &Session) -> Vec<Command> {
    let is_attached = session.header().is_some_and(|header| header.engine.is_some());
    match refusal(session) {
        Some(why) => app.say(why),
        None if !is_attached => app.say("the engine sends its predictions with every round: Inspect shows them"),
        None if session.is_generating() => app.say("the answer is not over yet"),
        None => {
            app.toast = Some("asking for predictions, one request a token".to_owned());
            vec![Command::AskRows]
        }
    }
}

fn send(app: &mut App, time: &mut Timeline) -> Vec<Command> {
    if time.live().draft_asked().is_some() {
        time.follow();
        return vec![Command::ProposeDraft { text: app.talk.editor.take() }];
    }
    if app.talk.editor.text().trim().is_empty() {
        return Vec::new();
    }
    if let Some(refusal) = cannot_send(app, time.live()) {
        return app.say(refusal);
    }
    // what the user asks is no part of a lesson
    let mut commands = if app.learning.runs_lesson { learn::steps::end_run(app, time) } else { Vec::new() };
    time.follow();
    let text = app.talk.editor.take();
    commands.extend(generate(app, time.live(), text));
    commands
}

/// The commands that the options ask for when a source has just begun.
pub(super) fn greet(app: &mut App, time: &mut Timeline) -> Vec<Command> {
    tour::greet(app, time);
    app.toast.take_if(|toast| toast == STILL_LOADING);
    let session = time.live();
    let mut commands = Vec::new();
    if app.place.split {
        commands.extend(settings::race(app, session));
    }
    if let Some(text) = app.options.initial_prompt.take() {
        commands.extend(generate(app, session, text));
    }
    commands
}

/// Sends a prompt as if it had been typed, unless none can be sent.
pub(super) fn ask(app: &mut App, time: &Timeline, text: String) -> Vec<Command> {
    if cannot_send(app, time.live()).is_some() { Vec::new() } else { generate(app, time.live(), text) }
}

/// Sends a prompt and moves the focus to the answer.
fn generate(app: &mut App, session: &Session, text: String) -> Vec<Command> {
    let is_typed = app.is_typing();
    watch(app, session);
    app.requests.await_answer(session, text.clone());
    app.requests.awaiting.iter_mut().for_each(|sent| sent.is_typed = is_typed);
    let generate = Command::Generate { prompt: conversation::prompt(app, session, text) };
    // a pause that a lesson made belongs to the lesson
    let lesson_holds = std::mem::take(&mut app.learning.study.holds);
    match lesson_holds {
        // a pace steps through the answer from its first phase
        _ if app.clock.plays && !app.requests.pending.is_held(session) => vec![Command::Pause, generate],
        true if !app.clock.plays => vec![Command::Resume, generate],
        _ => vec![generate],
    }
}

fn toggle_split(app: &mut App, session: &Session) -> Vec<Command> {
    app.place.split = !app.place.split;
    match app.place.split {
        _ if !can_generate(session) => Vec::new(),
        true => settings::race(app, session),
        false => settings::end_race(app, session),
    }
}
