//! Keys while an overlay is open: help, actions, search, settings, what if.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::app::overlay::help_page::HelpPage;
use crate::app::overlay::what_if_form::{Row, WhatIfForm};
use crate::app::place::search;
use crate::app::talk::conversation::{self, Point};
use crate::app::{App, Ask, Overlay};
use crate::input::action::Action;
use crate::input::keymap::Context;
use crate::input::line_input::LineInput;
use draftscope_protocol::{
    Ability, Again, Command, DraftLenMode, Lane, MAX_DRAFT_LEN, Piece, Prompt, Settings, TokenId,
};
use draftscope_session::round_at::{RoundAt, round_at};
use draftscope_session::{Round, Session, Timeline, WhatIf, what_if};

use super::done::{Done, below, keep};
use super::sending::{can, unable};
use super::{learn, marks, panels, quit, seek, time};

/// Rows that a key moves in a list which it moves by a page.
const PAGE: usize = 10;

/// Handles a key that is not bound.
pub(super) fn type_key(app: &mut App, time: &Timeline, key: KeyEvent) {
    let mut found = None;
    if app.place.overlay.is_none() && app.is_typing() {
        app.toast = None;
        app.talk.editor.input(key);
        return;
    }
    if app.place.overlay.is_none() && !app.clock.is_recording {
        no_key(app, key);
        return;
    }
    match &mut app.place.overlay {
        Some(Overlay::Palette(entry) | Overlay::Note(entry, _) | Overlay::GoTo(entry) | Overlay::Draft(entry)) => {
            app.toast = None;
            entry.input(key);
        }
        Some(Overlay::Help(help)) => help.input(key),
        Some(Overlay::Search(entry)) => {
            let changed = entry.input(key);
            found = changed.then(|| search::find(time.shown(), entry.text(), None, true)).flatten();
        }
        Some(Overlay::WhatIf(form)) => form.input(key),
        _ => {}
    }
    if let Some((at, cell)) = found {
        app.place.select(at, cell);
    }
}

/// Says where text goes, to one who types outside the prompt.
fn no_key(app: &mut App, key: KeyEvent) {
    let KeyCode::Char(typed) = key.code else { return };
    if !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
        let prompt = app.keymap.label(Context::Browse, Action::EditPrompt);
        app.toast = Some(format!("'{typed}' does nothing here; to type a prompt, press {prompt} first"));
    }
}

pub(super) fn update(app: &mut App, time: &mut Timeline, action: Action) -> Done {
    let Some(overlay) = app.place.overlay.take() else {
        return Done::No;
    };
    if action == Action::Leave {
        match overlay {
            Overlay::Themes(before) => app.choose_theme(before),
            Overlay::Help(help) if help.search.is_some() => {
                app.place.overlay = Some(Overlay::Help(HelpPage::default()));
            }
            _ => {}
        }
        return Done::Yes(Vec::new());
    }
    match overlay {
        Overlay::Help(page) => help(app, page, action),
        Overlay::Palette(entry) => palette(app, entry, action),
        Overlay::Search(entry) => search(app, time.shown(), entry, action),
        Overlay::Settings(panel) => panels::settings(app, time.live(), panel, action),
        Overlay::Versus(row) => panels::versus(app, time.live(), row, action),
        Overlay::Export(row) => panels::export(app, row, action),
        Overlay::SentPrompt(line) => panels::sent_prompt(app, line, action),
        Overlay::Themes(before) => panels::themes(app, before, action),
        Overlay::WhatIf(form) => what_if_panel(app, time, form, action),
        Overlay::Note(entry, place) => match action {
            Action::Confirm => Done::Yes(marks::note(app, entry.text(), place)),
            _ => below(app, Overlay::Note(entry, place), action),
        },
        Overlay::Draft(entry) => match action {
            Action::Confirm => Done::Yes(learn::draft_typed(app, time, entry.text().to_owned())),
            _ => below(app, Overlay::Draft(entry), action),
        },
        Overlay::GoTo(entry) => go_to(app, time, entry, action),
        Overlay::Quit => leaving(app, action),
        Overlay::Why => Done::No,
    }
}

/// The answer to whether to leave a session that is not saved.
fn leaving(app: &mut App, action: Action) -> Done {
    match action {
        Action::Save => app.requests.asks.push(Ask::SaveAndQuit),
        Action::Quit | Action::StopOrQuit => return Done::Yes(quit::at_once(app)),
        _ => return below(app, Overlay::Quit, action),
    }
    keep(app, Overlay::Quit)
}

fn help(app: &mut App, mut help: HelpPage, action: Action) -> Done {
    let (page, last) = (app.place.hit_map.page.max(2) - 1, app.place.hit_map.help_max);
    match action {
        Action::Help if help.search.is_none() => return Done::Yes(Vec::new()),
        Action::Palette => return Done::Run(action),
        _ if help.scroll(action, page, last) => {}
        _ => return below(app, Overlay::Help(help), action),
    }
    keep(app, Overlay::Help(help))
}

fn palette(app: &mut App, mut entry: LineInput, action: Action) -> Done {
    let found = entry.actions();
    match action {
        Action::Up => entry.choice = entry.choice.saturating_sub(1),
        Action::Down => entry.choice = (entry.choice + 1).min(found.len().saturating_sub(1)),
        Action::PageUp => entry.choice = entry.choice.saturating_sub(PAGE),
        Action::PageDown => entry.choice = (entry.choice + PAGE).min(found.len().saturating_sub(1)),
        Action::Confirm => match found.get(entry.choice) {
            Some(chosen) => return Done::Run(*chosen),
            None => app.toast = Some("no action has that name".to_owned()),
        },
        Action::Palette => return Done::Yes(Vec::new()),
        _ => return below(app, Overlay::Palette(entry), action),
    }
    keep(app, Overlay::Palette(entry))
}

/// Enter and Down go to the next hit, Up to the one before.
fn search(app: &mut App, session: &Session, entry: LineInput, action: Action) -> Done {
    let forward = match action {
        Action::Confirm | Action::Down => true,
        Action::Up => false,
        _ => return below(app, Overlay::Search(entry), action),
    };
    let from = app.place.selected.map(|at| (at, app.place.cell));
    match search::find(session, entry.text(), from, forward) {
        Some((at, cell)) => app.place.select(at, cell),
        None => app.toast = Some("not found".to_owned()),
    }
    keep(app, Overlay::Search(entry))
}

fn go_to(app: &mut App, time: &mut Timeline, entry: LineInput, action: Action) -> Done {
    if action != Action::Confirm {
        return below(app, Overlay::GoTo(entry), action);
    }
    match seek::go_to(app, time, entry.text()) {
        Some(commands) => Done::Yes(commands),
        None => {
            app.toast = Some("name a round (12), a time (3.5s, 1:05) or a share (40%)".to_owned());
            keep(app, Overlay::GoTo(entry))
        }
    }
}

fn what_if_panel(app: &mut App, time: &mut Timeline, mut form: Box<WhatIfForm>, action: Action) -> Done {
    let Some(round) = round_at(time.shown(), form.at) else {
        return Done::Yes(Vec::new()); // the round is gone from the moment on show
    };
    match action {
        Action::Up => form.row = form.row.saturating_sub(1),
        Action::Down => form.row = (form.row + 1).min(Row::ALL.len() - 1),
        Action::Left => form.turn(round, false),
        Action::Right => form.turn(round, true),
        Action::Confirm if can(time.live(), Ability::WhatIf) => return Done::Yes(ask_engine(app, time, &form)),
        Action::Confirm => {
            let unable = unable(time.live(), Ability::WhatIf);
            app.toast =
                Some(unable.unwrap_or("this is a recording: it is judged again here, it cannot be asked".to_owned()));
        }
        _ => return below(app, Overlay::WhatIf(form), action),
    }
    keep(app, Overlay::WhatIf(form))
}

/// Continues with the form's settings: a branch from what the reply committed or, if the recording does not reach that
/// far, from before the round, so that the engine decides.
fn ask_engine(app: &mut App, time: &mut Timeline, form: &WhatIfForm) -> Vec<Command> {
    let Some(prompt) = prompt_of(time.shown(), form) else {
        return app.say("the round is not scored yet");
    };
    let runs_again = matches!(&prompt, Prompt::Branch(from) if from.again.is_some());
    let wanted = round_at(time.shown(), form.at)
        .map(|round| settings_of(round, &form.change(), app.requests.settings(time.live())));
    let sent = time::branch(app, time, prompt);
    let Some(wanted) = wanted.filter(|_| !sent.is_empty()) else {
        return sent; // refused: nothing is asked for
    };
    let index = time.live().turns().len();
    let mut commands = changed_settings(app, time.live(), (wanted, index));
    let generate = sent.len() - 1;
    commands.splice(0..0, sent[..generate].iter().cloned());
    commands.extend_from_slice(&sent[generate..]);
    if runs_again {
        // the reply is that one round
        commands.push(Command::StepRound);
        app.clock.plays = false;
        let (on, back) = (app.key(Action::PauseResume), app.key(Action::ReturnBranch));
        let ended = if sent[0] == Command::Stop { " to the answer that it ended, which goes on" } else { "" };
        app.toast = Some(format!("the engine was asked: this round is its reply; {on} goes on, {back} returns{ended}"));
    }
    commands
}

/// If the recording lacks what is needed, the engine is asked: the round is run again from its anchor.
fn again(round: &Round, change: &WhatIf) -> Again {
    let Some((place, text)) = &change.replace else {
        return Again::default(); // the drafter is asked as ever
    };
    let mut before: Vec<usize> = std::iter::successors(round.parent(*place), |at| round.parent(*at)).collect();
    before.reverse();
    let id = |index: &usize| round.drafts.get(*index).map(|cell| cell.token.id);
    let mut drafts: Vec<_> = before.iter().filter_map(id).collect();
    match what_if_token(round, *place, text) {
        Some(known) => {
            drafts.push(known);
            Again { drafts, text: String::new() }
        }
        None => Again { drafts, text: text.clone() },
    }
}

/// The token that a typed text names at a position of a round, if the target's row lists it.
fn what_if_token(round: &Round, place: usize, text: &str) -> Option<TokenId> {
    let spaced = format!(" {text}");
    let same = |wanted: &str| round.prediction(place)?.top.iter().find(|c| &*c.piece.bytes == wanted.as_bytes());
    same(text).or_else(|| same(&spaced)).map(|candidate| candidate.piece.id)
}

fn prompt_of(session: &Session, form: &WhatIfForm) -> Option<Prompt> {
    let RoundAt { turn, .. } = form.at;
    let (turn, round) = (session.turns().get(turn)?, round_at(session, form.at)?);
    let reply = what_if(round, &form.change())?;
    let has_anchor = (1..=turn.answer(Lane::Speculative).tokens.len()).contains(&round.first_token);
    if reply.open.is_some() && form.change().overrule.is_none() && has_anchor {
        let again = Some(again(round, &form.change()));
        return Some(conversation::branch(&Point { kept: round.first_token, again, ..Point::of(turn) }));
    }
    let known = |piece: &&Piece| !piece.id.is_unknown();
    let mut added: Vec<_> = reply.committed.iter().take_while(known).cloned().collect();
    let kept = round.first_token.min(turn.answer(Lane::Speculative).tokens.len());
    if added.last().is_some_and(|piece| piece.special) {
        added.pop();
    }
    if reply.open.is_some() && form.change().overrule.is_none() && form.change().replace.is_none() {
        added.clear();
    }
    Some(conversation::branch(&Point { kept, added, forced: !reply.is_lossless, ..Point::of(turn) }))
}

/// The settings that the panel shows, if the run has others; they apply until the user returns from the branch.
fn changed_settings(app: &mut App, live: &Session, (wanted, index): (Settings, usize)) -> Vec<Command> {
    let before = app.requests.settings(live);
    let mut commands = Vec::new();
    if (wanted.draft_len, wanted.draft_len_mode) != (before.draft_len, before.draft_len_mode) {
        commands.push(Command::SetDraftLen { draft_len: wanted.draft_len });
    }
    if wanted.rule != before.rule {
        commands.push(Command::SetRule { rule: wanted.rule });
    }
    if wanted.sampling != before.sampling {
        commands.push(Command::SetSampling { sampling: wanted.sampling });
    }
    if !commands.is_empty() {
        app.requests.want(live, wanted);
        app.talk.lent.insert(index, (before, wanted));
    }
    commands
}

/// The form's changes; the rest as it was in the round. If the engine chooses k, or drafts form a tree, the round has
/// no k that could be requested.
fn settings_of(round: &Round, change: &WhatIf, mut settings: Settings) -> Settings {
    let own = Some(usize::from(round.draft_len()));
    let has_own = round.number() > 0 && !round.is_tree() && settings.draft_len_mode == DraftLenMode::Fixed;
    if let Some(draft_len) = change.draft_len.or(own.filter(|_| has_own)) {
        settings.draft_len = draft_len.min(MAX_DRAFT_LEN.into()) as u8;
        settings.draft_len_mode = DraftLenMode::Fixed;
    }
    settings.rule = change.rule.unwrap_or(round.rule);
    settings.sampling = round.sampling;
    if let Some(temperature) = change.temperature {
        settings.sampling.temperature = temperature;
    }
    settings
}
