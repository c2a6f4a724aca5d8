//! Actions that only change what the user sees: pages, panes, scrolling, selection.

use crossterm::event::{KeyCode, KeyEvent};

use crate::app::overlay::help_page::HelpPage;
use crate::app::overlay::panel_row::SettingsPanel;
use crate::app::overlay::what_if_form::WhatIfForm;
use crate::app::place::filter::{Filter, has_reject};
use crate::app::place::page::{Page, Pane};
use crate::app::{App, Ask, Overlay, Scroll};
use crate::input::action::Action;
use crate::input::line_input::LineInput;
use draftscope_session::round_at::{RoundAt, live_round, places, round_at, rounds};
use draftscope_session::{Session, Turn};

use super::sending::still_answering;

/// Why nothing can be typed.
pub(super) const NO_PROMPT: &str = "this is a recording: it takes no prompt; draftscope chat asks the model";

/// Performs an action; `session` is the shown one.
pub(super) fn update(app: &mut App, session: &Session, action: Action) {
    if let Some(page) = Page::ALL.iter().find(|page| page.action() == action) {
        app.go_to(*page);
        return;
    }
    if open(app, session, action) || select_by(app, session, action) {
        return;
    }
    match action {
        Action::Newline => app.talk.editor.newline(),
        Action::HistoryPrevious | Action::HistoryNext => history(app, session, action),
        Action::Leave => leave(app, session),
        Action::FocusNext => cycle(app, true),
        Action::FocusPrevious => cycle(app, false),
        Action::Zoom => app.place.is_zoomed = !app.place.is_zoomed && !app.is_typing(),
        Action::Present => present(app, session),
        Action::EditPrompt => edit_prompt(app),
        Action::NewConversation => new_conversation(app, session),
        Action::NextFilter => app.place.filter = app.place.filter.next(),
        Action::ReadLoop => read_loop(app),
        Action::NextDisplay => {
            let now = app
                .place
                .turn(session)
                .map_or_else(|| app.place.display.unwrap_or_default(), |turn| app.display_of(session, turn));
            app.place.display = Some(now.next());
        }
        Action::ToggleThought => {
            app.place.shows_thought = !app.place.shows_thought;
            app.toast = Some(format!("thought: {}", if app.place.shows_thought { "shown" } else { "folded" }));
        }
        Action::NextTheme => {
            app.turn_theme(true);
            app.toast = Some(format!("theme: {}", app.theme().name));
        }
        Action::Suspend => app.requests.asks.push(Ask::Suspend),
        Action::Save => app.requests.asks.push(Ask::Save),
        Action::Picture => app.requests.asks.push(Ask::Picture),
        Action::Copy => match copied(app, session) {
            Some(text) => app.requests.asks.push(Ask::Copy(text)),
            None => app.toast = Some("there is no answer to copy".to_owned()),
        },
        _ => scroll(app, session, action),
    }
}

/// Opens an overlay.
fn open(app: &mut App, session: &Session, action: Action) -> bool {
    app.place.overlay = Some(match action {
        Action::Help => Overlay::Help(HelpPage::default()),
        Action::Palette => Overlay::Palette(LineInput::default()),
        Action::Search => Overlay::Search(LineInput::default()),
        Action::Settings => Overlay::Settings(SettingsPanel::default()),
        Action::Versus => Overlay::Versus(0),
        Action::Export if app.options.export.is_none() => {
            app.toast = Some(format!("this session cannot be exported from here; {} saves it", app.key(Action::Save)));
            return true;
        }
        Action::Export => Overlay::Export(0),
        Action::ShowPrompt => Overlay::SentPrompt(0),
        Action::WhyDisturbed if app.place.turn(session).and_then(Turn::disturbance).is_some() => Overlay::Why,
        Action::WhyDisturbed => {
            app.toast = Some("nothing disturbed the figures on show".to_owned());
            return true;
        }
        Action::ChooseTheme => Overlay::Themes(app.themes().1),
        Action::WhatIf => match app.round_index(session) {
            Some(at) => Overlay::WhatIf(Box::new(WhatIfForm::new(at))),
            None => {
                app.toast = Some("there is no round yet: send a prompt first".to_owned());
                return true;
            }
        },
        _ => return false,
    });
    true
}

fn select_by(app: &mut App, session: &Session, action: Action) -> bool {
    let reject = |at: RoundAt| round_at(session, at).is_some_and(has_reject);
    match action {
        Action::RoundPrevious => select(app, session, |_| true, (false, "round")),
        Action::RoundNext => select(app, session, |_| true, (true, "round")),
        Action::RejectPrevious => select(app, session, reject, (false, "round with a rejected draft")),
        Action::RejectNext => select(app, session, reject, (true, "round with a rejected draft")),
        Action::TurnPrevious => turn(app, session, false),
        Action::TurnNext => turn(app, session, true),
        Action::Left => move_cell(app, session, false),
        Action::Right => move_cell(app, session, true),
        Action::Open if app.place.page == Page::Inspect => app.go_to(Page::Chat),
        Action::Open => inspect(app, session),
        _ => return false,
    }
    true
}

fn scroll(app: &mut App, session: &Session, action: Action) {
    let page = app.place.hit_map.page.max(2) - 1;
    if matches!(app.place.page, Page::Rounds | Page::Inspect) {
        let by = if app.place.page == Page::Rounds { page } else { 1 };
        match action {
            Action::Up => walk(app, session, 1, false),
            Action::Down => walk(app, session, 1, true),
            Action::PageUp => walk(app, session, by, false),
            Action::PageDown => walk(app, session, by, true),
            Action::Top => walk(app, session, usize::MAX, false),
            _ => {}
        }
        return;
    }
    match action {
        Action::Up => app.place.scroll_to(app.place.hit_map.top.saturating_sub(1)),
        Action::Down => app.place.scroll_to(app.place.hit_map.top + 1),
        Action::PageUp => app.place.scroll_to(app.place.hit_map.top.saturating_sub(page)),
        Action::PageDown => app.place.scroll_to(app.place.hit_map.top + page),
        Action::Top => app.place.scroll_to(0),
        _ => {}
    }
}

fn cycle(app: &mut App, forward: bool) {
    let panes = app.place.page.panes();
    let at = panes.iter().position(|pane| *pane == app.place.pane).unwrap_or(0);
    let step = if forward { 1 } else { panes.len() - 1 };
    app.place.pane = panes[(at + step) % panes.len()];
    if app.place.pane == Pane::Prompt && app.clock.is_recording {
        app.place.pane = panes[(at + 2 * step) % panes.len()];
    }
    if app.is_typing() {
        app.place.is_zoomed = false;
    }
}

fn edit_prompt(app: &mut App) {
    if app.clock.is_recording {
        app.toast = Some(NO_PROMPT.to_owned());
        return;
    }
    app.place.page = Page::Chat;
    app.place.pane = Pane::Prompt;
    app.place.is_zoomed = false;
}

/// Enters or leaves presenter mode. If there is a round, keys go to it rather than to the prompt.
fn present(app: &mut App, session: &Session) {
    app.place.presents = !app.place.presents;
    app.place.is_zoomed = false;
    if app.place.presents && app.is_typing() && app.round_index(session).is_some() {
        app.place.pane = app.place.page.home();
    }
}

/// Shows the lines of the loop, where they have a place, or takes them away.
fn read_loop(app: &mut App) {
    let has_place = app.place.presents || app.place.page == Page::Rounds;
    app.place.reads_loop = !(app.place.reads_loop && has_place);
    if !has_place {
        app.go_to(Page::Rounds);
    }
}

fn history(app: &mut App, session: &Session, action: Action) {
    let up = action == Action::HistoryPrevious;
    if app.offers_starters(session) {
        app.offer_starter(up);
    } else if !app.talk.editor.is_recalling() {
        app.talk.editor.input(KeyEvent::from(if up { KeyCode::Up } else { KeyCode::Down }));
    } else if up {
        app.talk.editor.previous();
    } else {
        app.talk.editor.next();
    }
}

fn leave(app: &mut App, session: &Session) {
    app.notices_read = session.notices_seen();
    if app.place.is_zoomed {
        app.place.is_zoomed = false;
    } else if app.is_typing() {
        app.place.pane = app.place.page.home();
    } else if app.place.selected.is_some() || app.place.cell.is_some() {
        app.place.follow_live();
    } else {
        app.place.presents = false;
    }
}

fn new_conversation(app: &mut App, session: &Session) {
    if app.is_busy(session) {
        app.toast = Some(still_answering(app));
        return;
    }
    let start = session.turns().len();
    if app.talk.conversations.last() != Some(&start) {
        app.talk.conversations.push(start);
    }
    app.place.follow_live();
    edit_prompt(app);
    app.toast = Some("new conversation".to_owned());
}

/// Selects the nearest matching round, which the name describes; forward after the last one returns to live.
fn select(app: &mut App, session: &Session, fits: impl Fn(RoundAt) -> bool, (forward, name): (bool, &str)) {
    let Some(live) = live_round(session) else {
        return;
    };
    let from = app.round_index(session).unwrap_or(live);
    // the first press backward selects a round that is on show without having been selected
    let is_own = |at: &RoundAt| *at == from && from != live && app.place.selected.is_none();
    let is_behind = |at: &RoundAt| if forward { *at > from } else { *at < from || is_own(at) };
    let mut all = rounds(session).filter(|at| is_behind(at) && fits(*at));
    let found = if forward { all.next() } else { all.next_back() };
    match found {
        Some(at) if at == live && forward => app.place.follow_live(),
        Some(at) => app.place.select(at, None),
        None if forward && live > from && fits(live) => app.place.follow_live(), // an answer without a round yet
        None => app.toast = Some(format!("there is no {} {name}", if forward { "later" } else { "earlier" })),
    }
}

/// Goes to the start of a turn: of the shown one first, then of the one before; forward after the last one returns to
/// live.
fn turn(app: &mut App, session: &Session, forward: bool) {
    let starts: Vec<_> = places(session).filter(|at| at.round.is_none()).collect();
    let here = app.place.selected.filter(|_| app.place.scroll == Scroll::Turn || forward);
    let from = here.or_else(|| app.round_index(session));
    let found = match from {
        Some(from) if forward => starts.into_iter().find(|at| at.turn > from.turn),
        Some(from) if here.is_some() => starts.into_iter().rfind(|at| at.turn < from.turn),
        Some(from) => starts.into_iter().rfind(|at| at.turn <= from.turn),
        None => None,
    };
    match found {
        Some(at) => {
            app.place.select(at, None);
            app.place.scroll = Scroll::Turn;
        }
        None if forward => app.place.follow_live(),
        None => app.toast = Some("this is the first turn".to_owned()),
    }
}

/// Selects a round so many rows up or down; forward after the last one returns to live.
fn walk(app: &mut App, session: &Session, count: usize, forward: bool) {
    let filter = if app.place.page == Page::Rounds { app.place.filter } else { Filter::All };
    let fitting: Vec<_> = rounds(session).filter(|at| filter.fits_at(session, *at)).collect();
    let (Some(last), Some(from)) = (fitting.len().checked_sub(1), app.round_index(session)) else {
        return;
    };
    let at = fitting.partition_point(|at| *at < from);
    let on_row = fitting.get(at) == Some(&from);
    let to = match forward {
        true if on_row => at.saturating_add(count).min(last),
        true => at.min(last),
        false => at.saturating_sub(count),
    };
    let live = live_round(session);
    let is_beyond = on_row && at == last && live > Some(from); // an answer without a round yet
    if forward && (Some(fitting[to]) == live || is_beyond) {
        app.place.follow_live();
    } else {
        app.place.select(fitting[to], None);
    }
}

/// Selects the position before or after, across rounds.
fn move_cell(app: &mut App, session: &Session, forward: bool) {
    let (Some(at), Some(round)) = (app.round_index(session), app.round(session)) else {
        return;
    };
    let cell = app.place.cell.unwrap_or_else(|| round.deciding_column());
    let columns = round.columns();
    if app.place.cell.is_none() && app.place.selected.is_none() {
        app.place.select(at, Some(cell)); // the first press shows where one is
    } else if forward && cell + 1 < columns {
        app.place.select(at, Some(cell + 1));
    } else if !forward && cell > 0 {
        app.place.select(at, Some((cell - 1).min(columns.saturating_sub(1))));
    } else {
        let mut all = places(session).filter(|other| if forward { *other > at } else { *other < at });
        let next = if forward { all.next() } else { all.next_back() };
        let Some(next) = next else {
            return;
        };
        let last = round_at(session, next).map_or(0, |round| round.columns().saturating_sub(1));
        app.place.select(next, Some(if forward { 0 } else { last }));
    }
}

/// Opens the selected position in Inspect.
fn inspect(app: &mut App, session: &Session) {
    let (Some(at), Some(round)) = (app.round_index(session), app.round(session)) else {
        app.toast = Some("there is no round yet: send a prompt first".to_owned());
        return;
    };
    let cell = app.place.cell.unwrap_or_else(|| round.deciding_column());
    app.place.select(at, Some(cell));
    app.go_to(Page::Inspect);
}

/// The text to copy: the shown answer.
fn copied(app: &App, session: &Session) -> Option<String> {
    let turn = app.place.turn(session)?;
    let text = turn.answer(draftscope_protocol::Lane::Speculative).text();
    // a terminal into which it is pasted would obey the other characters
    let text: String = text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect();
    (!text.is_empty()).then_some(text)
}
