//! Two recordings side by side: where the user looks, and what the keys do.
//!
//! Invariant: both sessions are folded before this begins and never change; the cursor is on a pair of the shown turn,
//! if it has one. `session` aligns, `view/diff` draws, `diff_loop.rs` is the loop.

use crossterm::event::KeyEvent;

use draftscope_protocol::{Lane, TokenId};
use draftscope_session::{Answer, Diff, Pair, Session, Timeline, TurnDiff, align};

use crate::app::options::TuiOptions;
use crate::app::overlay::help_page::HelpPage;
use crate::app::{App, Overlay};
use crate::input::action::Action;
use crate::input::keymap::Context;
use crate::input::line_input::LineInput;

/// One of the two recordings.
pub struct Recorded {
    /// Its name.
    pub name: String,
    /// Its session.
    pub session: Session,
}

/// A turn that both have, aligned.
pub(crate) struct Laid {
    pub(crate) diff: TurnDiff,
    pub(crate) pairs: Vec<Pair>,
    /// Where in `pairs` each run of differences begins.
    pub(crate) differences: Vec<usize>,
}

/// Two recordings and where the user looks.
pub struct Compared {
    pub(crate) sides: [Recorded; 2],
    pub(crate) diff: Diff,
    pub(crate) turns: Vec<Laid>,
    /// Index of the turn on show.
    pub(crate) turn: usize,
    /// Index of the chosen pair.
    pub(crate) row: usize,
    /// Keys, themes, and overlays.
    pub(crate) app: App,
    /// An empty run, for panels that need one.
    pub(crate) time: Timeline,
    /// Measured by the last frame: number of pairs shown, the first of them, and its line on the screen.
    pub(crate) measured: (usize, usize, u16),
}

impl Compared {
    /// Puts two recordings side by side; the cursor is at the first difference.
    #[must_use]
    pub fn new(a: Recorded, b: Recorded, options: TuiOptions) -> Self {
        let diff = Diff::of(&a.session, &b.session);
        let laid = |turn: &TurnDiff| Some(Laid::of(turn.clone(), [answer(&a, turn.turn)?, answer(&b, turn.turn)?]));
        let turns: Vec<Laid> = diff.turns.iter().filter_map(laid).collect();
        let turn = turns.iter().position(|turn| !turn.differences.is_empty()).unwrap_or(0);
        let row = turns.get(turn).and_then(|turn| turn.differences.first().copied()).unwrap_or(0);
        let (app, time) = (App::new(options), Timeline::new());
        Self { sides: [a, b], diff, turns, turn, row, app, time, measured: (1, 0, 0) }
    }

    /// The shown turn.
    pub(crate) fn laid(&self) -> Option<&Laid> {
        self.turns.get(self.turn)
    }

    /// Both answers of the shown turn.
    pub(crate) fn answers(&self) -> Option<[&Answer; 2]> {
        let number = self.laid()?.diff.turn;
        Some([answer(&self.sides[0], number)?, answer(&self.sides[1], number)?])
    }

    /// Where keys go now.
    pub(crate) fn context(&self) -> Context {
        if self.app.place.overlay.is_some() { self.app.context() } else { Context::Diff }
    }

    /// Whether the user has quit.
    #[must_use]
    pub fn quits(&self) -> bool {
        self.app.leaving.quits
    }

    /// Handles a key.
    pub fn press(&mut self, key: KeyEvent) {
        match self.app.keymap.action(self.context(), key) {
            Some(action) => self.update(action),
            None => match &mut self.app.place.overlay {
                Some(Overlay::Palette(entry)) => drop(entry.input(key)),
                Some(Overlay::Help(help)) => help.input(key),
                _ => {}
            },
        }
    }

    /// Performs an action.
    pub fn update(&mut self, action: Action) {
        self.app.toast = None;
        match self.app.place.overlay.take() {
            Some(Overlay::Help(help)) => self.app.in_help(help, action),
            Some(Overlay::Palette(entry)) => self.palette(entry, action),
            _ => self.go(action),
        }
    }

    fn go(&mut self, action: Action) {
        let last = self.laid().map_or(0, |turn| turn.pairs.len().saturating_sub(1));
        let page = self.measured.0.max(2) - 1;
        match action {
            Action::Up => self.row = self.row.saturating_sub(1),
            Action::Down => self.row = (self.row + 1).min(last),
            Action::PageUp => self.row = self.row.saturating_sub(page),
            Action::PageDown => self.row = (self.row + page).min(last),
            Action::Top => self.row = 0,
            Action::Follow => self.row = last,
            Action::DivergenceNext => self.difference(true),
            Action::DivergencePrevious => self.difference(false),
            Action::TurnNext => self.show(self.turn + 1),
            Action::TurnPrevious => match self.turn.checked_sub(1) {
                Some(turn) => self.show(turn),
                None => self.app.toast = Some("this is the first turn".to_owned()),
            },
            Action::Help => self.app.place.overlay = Some(Overlay::Help(HelpPage::default())),
            Action::Palette => self.app.place.overlay = Some(Overlay::Palette(LineInput::default())),
            Action::Leave | Action::FocusNext | Action::FocusPrevious => {}
            _ if self.app.on_every_screen(action) => {}
            _ => self.app.toast = Some("two recordings are compared here: there is nothing to do that to".to_owned()),
        }
    }

    /// Shows a turn from its first difference.
    fn show(&mut self, turn: usize) {
        match self.turns.get(turn) {
            Some(laid) => {
                self.row = laid.differences.first().copied().unwrap_or(0);
                self.turn = turn;
            }
            None => self.app.toast = Some("this is the last turn that both have".to_owned()),
        }
    }

    /// Moves to the difference before or after the cursor, over all turns.
    fn difference(&mut self, forward: bool) {
        let here = (self.turn, self.row);
        let places = self.turns.iter().enumerate();
        let mut places = places.flat_map(|(turn, laid)| laid.differences.iter().map(move |row| (turn, *row)));
        let found = if forward { places.find(|at| *at > here) } else { places.take_while(|at| *at < here).last() };
        match found {
            Some((turn, row)) => (self.turn, self.row) = (turn, row),
            None if self.diff.is_same() => self.app.toast = Some("both wrote the same tokens".to_owned()),
            None => self.app.toast = Some("there is no further difference".to_owned()),
        }
    }

    fn palette(&mut self, mut entry: LineInput, action: Action) {
        let found = entry.actions();
        match action {
            Action::Leave | Action::Palette => return,
            Action::StopOrQuit | Action::Suspend | Action::Picture => return self.go(action),
            Action::Confirm => return found.get(entry.choice).into_iter().for_each(|chosen| self.go(*chosen)),
            Action::Up => entry.choice = entry.choice.saturating_sub(1),
            Action::Down => entry.choice = (entry.choice + 1).min(found.len().saturating_sub(1)),
            _ => {}
        }
        self.app.place.overlay = Some(Overlay::Palette(entry));
    }

    pub(crate) fn click(&mut self, y: u16) {
        let (rows, top, first) = self.measured;
        let place = usize::from(y.saturating_sub(first));
        let last = self.laid().map_or(0, |turn| turn.pairs.len());
        if y >= first && place < rows && top + place < last && self.app.place.overlay.is_none() {
            self.row = top + place;
        }
    }
}

fn answer(side: &Recorded, turn: u32) -> Option<&Answer> {
    Some(side.session.turns().iter().find(|other| other.number == turn)?.answer(Lane::Speculative))
}

impl Laid {
    fn of(diff: TurnDiff, answers: [&Answer; 2]) -> Self {
        let [a, b] = answers.map(|answer| answer.tokens.iter().map(|t| t.piece.id).collect::<Vec<TokenId>>());
        let pairs = align(&a, &b);
        let begins = |i: &usize| !pairs[*i].is_same && i.checked_sub(1).is_none_or(|before| pairs[before].is_same);
        let differences = (0..pairs.len()).filter(begins).collect();
        Self { diff, pairs, differences }
    }
}
