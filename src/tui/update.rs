//! Actions and keys to changes of [`App`] and commands for the source.
//!
//! Invariant: the session is read, never written; whatever a key asks of the engine leaves here as
//! a [`Command`] and comes back as an event, so that the screen shows what is, not what was asked.
//! Which key means which action is `keymap.rs`.

use crossterm::event::KeyEvent;

use crate::protocol::{Baseline, Command, MAX_DRAFT_LEN, Outcome, Sampling, Settings, VerifyRule};
use crate::session::Session;

use super::action::Action;
use super::app::{App, Focus, RoundAt, Scroll, live_round, round_at, rounds};
use super::keymap::Context;

/// Highest temperature the keys reach.
const MAX_TEMPERATURE: f32 = 2.0;

/// A key: the action bound to it, or typing.
pub fn press(app: &mut App, session: &Session, key: KeyEvent) -> Vec<Command> {
    let context = app.context();
    match app.keymap.action(context, key) {
        Some(action) => update(app, session, action),
        None => {
            if context == Context::Prompt {
                app.toast = None;
                app.editor.input(key);
            }
            Vec::new()
        }
    }
}

/// Pasted text goes into the prompt, wherever the user is; it never sends.
pub fn paste(app: &mut App, text: &str) {
    app.help = None;
    app.focus = Focus::Prompt;
    app.returns_to_prompt = false;
    app.editor.paste(text);
}

/// Does what an action says.
pub fn update(app: &mut App, session: &Session, action: Action) -> Vec<Command> {
    app.toast = None;
    if settles(action) {
        app.returns_to_prompt = false;
    }
    if app.help.is_some() && help(app, action) {
        return Vec::new();
    }
    match action {
        Action::Send => return send(app, session),
        Action::StopOrQuit => return stop_or_quit(app, session),
        Action::Quit => return quit(app),
        Action::PauseResume => {
            let held = session.is_paused();
            return when_running(app, session, if held { Command::Resume } else { Command::Pause });
        }
        Action::StepPhase => return when_running(app, session, Command::StepPhase),
        Action::StepRound => return when_running(app, session, Command::StepRound),
        Action::DraftLenUp
        | Action::DraftLenDown
        | Action::NextRule
        | Action::ToggleLossless
        | Action::TemperatureUp
        | Action::TemperatureDown
        | Action::NextBaseline => return change(app, session, action),
        Action::ToggleSplit => return toggle_split(app, session),
        _ => {}
    }
    look(app, session, action);
    Vec::new()
}

/// Whether an action says that the user wants to stay with the answer (or has left it): the end of
/// the answer then does not move the focus.
fn settles(action: Action) -> bool {
    !matches!(
        action,
        Action::StopOrQuit
            | Action::PauseResume
            | Action::StepPhase
            | Action::StepRound
            | Action::DraftLenUp
            | Action::DraftLenDown
            | Action::NextRule
            | Action::ToggleLossless
            | Action::TemperatureUp
            | Action::TemperatureDown
            | Action::NextBaseline
            | Action::NextTheme
            | Action::ToggleDiscarded
            | Action::ToggleSplit
            | Action::Follow
    )
}

/// Actions while the help is open; false leaves them to the rest.
fn help(app: &mut App, action: Action) -> bool {
    let top = app.help.unwrap_or(0);
    let page = app.seen.page.max(2) - 1;
    app.help = match action {
        Action::Help | Action::Leave => None,
        Action::ScrollUp => Some(top.saturating_sub(1)),
        Action::ScrollDown => Some((top + 1).min(app.seen.help_max)),
        Action::PageUp => Some(top.saturating_sub(page)),
        Action::PageDown => Some((top + page).min(app.seen.help_max)),
        _ => return false,
    };
    true
}

/// Actions that only move the user's eyes.
fn look(app: &mut App, session: &Session, action: Action) {
    let page = app.seen.page.max(2) - 1;
    match action {
        Action::Newline => app.editor.newline(),
        Action::HistoryPrevious | Action::HistoryNext => history(app, action),
        Action::Help => app.help = Some(0),
        Action::Leave => leave(app, session),
        Action::FocusNext => {
            app.focus = match app.focus {
                Focus::Prompt => Focus::Browse,
                Focus::Browse => Focus::Prompt,
            };
        }
        Action::EditPrompt => app.focus = Focus::Prompt,
        Action::NewConversation => new_conversation(app, session),
        Action::ScrollUp => scroll_to(app, app.seen.top.saturating_sub(1)),
        Action::ScrollDown => scroll_to(app, app.seen.top + 1),
        Action::PageUp => scroll_to(app, app.seen.top.saturating_sub(page)),
        Action::PageDown => scroll_to(app, app.seen.top + page),
        Action::Top => scroll_to(app, 0),
        Action::Follow => follow_live(app),
        Action::RoundPrevious => select(app, session, |at, from| at < from, false),
        Action::RoundNext => select(app, session, |at, from| at > from, true),
        Action::RejectPrevious => {
            select(app, session, |at, from| at < from && is_reject(session, at), false);
        }
        Action::RejectNext => select(app, session, |at, from| at > from && is_reject(session, at), true),
        Action::CellPrevious => move_cell(app, session, -1),
        Action::CellNext => move_cell(app, session, 1),
        Action::ToggleDiscarded => app.hides_discarded = !app.hides_discarded,
        Action::NextTheme => {
            app.next_theme();
            app.toast = Some(format!("theme: {}", app.theme().name));
        }
        _ => {}
    }
}

fn can_generate(session: &Session) -> bool {
    session.header().is_some_and(|header| header.capabilities.can_generate)
}

/// Why a source does not take settings or prompts (yet).
fn refusal(session: &Session) -> Option<&'static str> {
    match session.header() {
        None => Some("still loading"),
        Some(header) if !header.capabilities.can_generate => Some("this is a recording: it stays as it was"),
        Some(_) => None,
    }
}

fn send(app: &mut App, session: &Session) -> Vec<Command> {
    if app.editor.text().trim().is_empty() {
        return Vec::new();
    }
    let refusal = if app.is_busy(session) {
        Some("still answering: Ctrl+C stops it")
    } else if session.failure().is_some() || app.lost.is_some() {
        Some("the engine has stopped; quit and start again")
    } else {
        refusal(session)
    };
    if let Some(refusal) = refusal {
        app.toast = Some(refusal.to_owned());
        return Vec::new();
    }
    let text = app.editor.take();
    generate(app, session, text)
}

/// What the options ask of a source that has just begun.
pub(super) fn greet(app: &mut App, session: &Session) -> Vec<Command> {
    let mut commands = Vec::new();
    if app.split {
        commands.extend(race(app, session));
    }
    if let Some(text) = app.options.initial_prompt.take() {
        commands.extend(generate(app, session, text));
    }
    commands
}

/// Sends a prompt and turns the user's eyes to the answer.
fn generate(app: &mut App, session: &Session, text: String) -> Vec<Command> {
    follow_live(app);
    app.focus = Focus::Browse;
    app.returns_to_prompt = true;
    app.stop_sent = false;
    app.notices_read = session.notices_seen();
    let prompt = app.compose(session, text);
    vec![Command::Generate { prompt }]
}

fn stop_or_quit(app: &mut App, session: &Session) -> Vec<Command> {
    let can_stop = session.failure().is_none() && app.lost.is_none();
    if app.is_busy(session) && can_stop && !app.stop_sent {
        app.stop_sent = true;
        app.toast = Some("stopping after this round; Ctrl+C again quits".to_owned());
        return vec![Command::Stop];
    }
    quit(app)
}

fn quit(app: &mut App) -> Vec<Command> {
    app.quits = true;
    vec![Command::Shutdown]
}

fn when_running(app: &mut App, session: &Session, command: Command) -> Vec<Command> {
    if app.is_busy(session) || session.is_paused() || !can_generate(session) {
        return vec![command];
    }
    app.toast = Some("nothing is running: send a prompt first".to_owned());
    Vec::new()
}

/// Changes one setting, starting from what is wanted already.
fn change(app: &mut App, session: &Session, action: Action) -> Vec<Command> {
    if let Some(refusal) = refusal(session) {
        app.toast = Some(refusal.to_owned());
        return Vec::new();
    }
    let mut settings = app.settings(session);
    let command = match action {
        Action::DraftLenUp => draft_len(&mut settings, 1),
        Action::DraftLenDown => draft_len(&mut settings, -1),
        Action::NextRule => {
            settings.rule = next_rule(settings.rule);
            Command::SetRule { rule: settings.rule }
        }
        Action::ToggleLossless => {
            settings.rule = settings.rule.counterpart();
            Command::SetRule { rule: settings.rule }
        }
        Action::TemperatureUp => temperature(&mut settings.sampling, 0.1),
        Action::TemperatureDown => temperature(&mut settings.sampling, -0.1),
        _ => {
            settings.baseline = match settings.baseline {
                Baseline::Off => Baseline::PROBE,
                Baseline::Probe(_) => Baseline::Race,
                Baseline::Race => Baseline::Off,
            };
            Command::SetBaseline { baseline: settings.baseline }
        }
    };
    want(app, session, settings);
    vec![command]
}

fn want(app: &mut App, session: &Session, settings: Settings) {
    app.wanted = Some((*session.settings(), settings));
}

fn draft_len(settings: &mut Settings, step: i8) -> Command {
    settings.draft_len = settings.draft_len.saturating_add_signed(step).min(MAX_DRAFT_LEN);
    Command::SetDraftLen { draft_len: settings.draft_len }
}

fn next_rule(rule: VerifyRule) -> VerifyRule {
    let all = VerifyRule::ALL;
    let at = all.iter().position(|known| *known == rule).unwrap_or(0);
    all[(at + 1) % all.len()]
}

fn temperature(sampling: &mut Sampling, step: f32) -> Command {
    let tenths = ((sampling.temperature + step) * 10.0).round() / 10.0;
    sampling.temperature = tenths.clamp(0.0, MAX_TEMPERATURE);
    Command::SetSampling { sampling: *sampling }
}

fn toggle_split(app: &mut App, session: &Session) -> Vec<Command> {
    app.split = !app.split;
    if !app.split || !can_generate(session) {
        return Vec::new();
    }
    race(app, session)
}

/// Asks for the plain lane to run to its end, unless it does.
fn race(app: &mut App, session: &Session) -> Vec<Command> {
    let mut settings = app.settings(session);
    if settings.baseline == Baseline::Race {
        return Vec::new();
    }
    settings.baseline = Baseline::Race;
    want(app, session, settings);
    app.toast = Some("plain decoding runs beside the next turns, to their end".to_owned());
    vec![Command::SetBaseline { baseline: Baseline::Race }]
}

fn history(app: &mut App, action: Action) {
    let up = action == Action::HistoryPrevious;
    if !app.editor.is_recalling() {
        let code = if up { crossterm::event::KeyCode::Up } else { crossterm::event::KeyCode::Down };
        app.editor.input(KeyEvent::from(code));
    } else if up {
        app.editor.previous();
    } else {
        app.editor.next();
    }
}

fn leave(app: &mut App, session: &Session) {
    app.notices_read = session.notices_seen();
    if app.focus == Focus::Prompt {
        app.focus = Focus::Browse;
    } else if app.selected.is_some() || app.cell.is_some() {
        follow_live(app);
    } else {
        app.focus = Focus::Prompt;
    }
}

fn new_conversation(app: &mut App, session: &Session) {
    if app.is_busy(session) {
        app.toast = Some("still answering: Ctrl+C stops it".to_owned());
        return;
    }
    let start = session.turns().len();
    if app.conversations.last() != Some(&start) {
        app.conversations.push(start);
    }
    follow_live(app);
    app.focus = Focus::Prompt;
    app.toast = Some("new conversation".to_owned());
}

fn follow_live(app: &mut App) {
    app.selected = None;
    app.cell = None;
    app.scroll = Scroll::Follow;
}

fn scroll_to(app: &mut App, top: usize) {
    app.scroll = if top >= app.seen.max_top { Scroll::Follow } else { Scroll::Top(top) };
}

fn is_reject(session: &Session, at: RoundAt) -> bool {
    let rejected = |r: &crate::session::Round| (0..r.drafts.len()).any(|i| r.outcome(i) == Some(Outcome::Rejected));
    round_at(session, at).is_some_and(rejected)
}

/// Selects the nearest round that fits; forward beyond the last one is live again.
fn select(app: &mut App, session: &Session, fits: impl Fn(RoundAt, RoundAt) -> bool, forward: bool) {
    let Some(live) = live_round(session) else {
        return;
    };
    let from = app.selected.unwrap_or(live);
    let mut all = rounds(session).filter(|at| fits(*at, from));
    let found = if forward { all.next() } else { all.next_back() };
    match found {
        Some(at) if at == live && forward => follow_live(app),
        Some(at) => {
            app.selected = Some(at);
            app.cell = None;
            app.scroll = Scroll::Selected;
        }
        None => app.toast = Some("there is none".to_owned()),
    }
}

fn move_cell(app: &mut App, session: &Session, step: isize) {
    let Some(round) = app.round(session) else {
        return;
    };
    let from = app.cell.unwrap_or_else(|| super::view::telling_column(round));
    let last = round.columns().saturating_sub(1);
    app.cell = Some(from.saturating_add_signed(step).min(last));
    if app.selected.is_none() {
        app.selected = live_round(session);
    }
}
