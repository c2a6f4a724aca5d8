//! Servers that others use, as rows: where the user looks, and what the keys do there. A history of such a watch is shown
//! in the same way, at any of its moments.
//!
//! Invariant: what is known of the servers comes from their samples alone; the cursor stands on a server.

use crossterm::event::KeyEvent;

use draftscope_protocol::ServerSample;
use draftscope_session::{Alert, Fleet, Timeline};

use crate::app::options::TuiOptions;
use crate::app::overlay::help_page::HelpPage;
use crate::app::{App, Overlay};
use crate::input::action::Action;
use crate::input::keymap::Context;

/// Milliseconds of a page of a history.
const PAGE_MS: u64 = 60_000;

/// Servers, and where the user looks.
pub struct FleetView {
    pub(crate) fleet: Fleet,
    /// Index of the server whose details are shown.
    pub(crate) chosen: usize,
    /// Keys and themes.
    pub(crate) app: App,
    /// Nothing happens here: for panels that are drawn from a run.
    pub(crate) time: Timeline,
    /// The samples, where a history is shown.
    past: Option<Past>,
    alerts: Vec<Alert>,
    has_fired: bool,
}

/// A history, and the moment that is shown.
struct Past {
    samples: Vec<ServerSample>,
    /// How many of them have been taken.
    taken: usize,
    /// The time that is shown, in milliseconds of the watch.
    now_ms: u64,
    plays: bool,
}

impl FleetView {
    /// So many servers, of which nothing is known yet, and conditions on them.
    #[must_use]
    pub fn new(servers: usize, alerts: Vec<Alert>, options: TuiOptions) -> Self {
        Self {
            fleet: Fleet::new(servers).with_alerts(alerts.clone()),
            chosen: 0,
            app: App::new(options),
            time: Timeline::new(),
            past: None,
            alerts,
            has_fired: false,
        }
    }

    /// A history of so many servers, at its end.
    #[must_use]
    pub fn history(servers: usize, samples: Vec<ServerSample>, options: TuiOptions) -> Self {
        let end = samples.iter().map(|sample| sample.at_ms).max().unwrap_or(0);
        let past = Past { samples, taken: 0, now_ms: 0, plays: false };
        let mut view = Self { past: Some(past), ..Self::new(servers, Vec::new(), options) };
        view.show(end);
        view
    }

    /// Takes a look at a server.
    pub fn take(&mut self, sample: ServerSample) {
        for fired in self.fleet.take(sample) {
            self.has_fired |= fired.begins;
            self.app.toast = Some(fired.sentence);
        }
    }

    /// Whether the user has left.
    #[must_use]
    pub fn quits(&self) -> bool {
        self.app.leaving.quits
    }

    /// Whether a condition held for as long as it asks for.
    #[must_use]
    pub fn has_fired(&self) -> bool {
        self.has_fired
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.past.is_some()
    }

    /// The moment of a history, in words.
    pub(crate) fn moment(&self) -> Option<String> {
        let past = self.past.as_ref()?;
        let end = past.samples.iter().map(|sample| sample.at_ms).max().unwrap_or(0);
        let clock = |ms: u64| format!("{}:{:02}", ms / 60_000, ms / 1000 % 60);
        let state = if past.plays { ", playing" } else { "" };
        Some(format!("{} of {}{state}", clock(past.now_ms), clock(end)))
    }

    /// So much time passes; returns whether a playing history has something new.
    pub(crate) fn pass(&mut self, ms: u64) -> bool {
        let Some(past) = self.past.as_ref().filter(|past| past.plays) else { return false };
        self.show(past.now_ms.saturating_add(ms));
        true
    }

    /// Shows the history at a time.
    fn show(&mut self, to_ms: u64) {
        let Some(past) = &mut self.past else { return };
        let end = past.samples.iter().map(|sample| sample.at_ms).max().unwrap_or(0);
        past.plays &= to_ms < end;
        let to_ms = to_ms.min(end);
        if to_ms < past.now_ms {
            past.taken = 0;
            self.fleet = Fleet::new(self.fleet.servers().len()).with_alerts(self.alerts.clone());
        }
        past.now_ms = to_ms;
        while let Some(sample) = past.samples.get(past.taken).filter(|sample| sample.at_ms <= to_ms) {
            past.taken += 1;
            self.fleet.take(sample.clone());
        }
    }

    /// Goes to the look after or before the moment that is shown.
    fn step(&mut self, forward: bool) {
        let Some(past) = &self.past else { return };
        let (now, times) = (past.now_ms, past.samples.iter().map(|sample| sample.at_ms));
        let to = match forward {
            true => times.filter(|ms| *ms > now).min(),
            false => times.filter(|ms| *ms < now).max(),
        };
        to.into_iter().for_each(|to| self.show(to));
    }

    /// A key.
    pub fn press(&mut self, key: KeyEvent) {
        let context = if self.app.place.overlay.is_some() { self.app.context() } else { Context::Watch };
        match self.app.keymap.action(context, key) {
            Some(action) => self.update(action),
            None => {
                if let Some(Overlay::Help(help)) = &mut self.app.place.overlay {
                    help.input(key);
                }
            }
        }
    }

    pub(crate) fn update(&mut self, action: Action) {
        self.app.toast = None;
        match self.app.place.overlay.take() {
            Some(Overlay::Help(help)) => self.app.in_help(help, action),
            _ => self.go(action),
        }
    }

    fn go(&mut self, action: Action) {
        let last = self.fleet.servers().len().saturating_sub(1);
        match action {
            Action::Up => self.chosen = self.chosen.saturating_sub(1),
            Action::Down => self.chosen = (self.chosen + 1).min(last),
            Action::Top => self.chosen = 0,
            Action::Follow => self.chosen = last,
            Action::Help => self.app.place.overlay = Some(Overlay::Help(HelpPage::default())),
            Action::Leave => {}
            _ if self.past.is_some() && self.travel(action) => {}
            _ if self.app.on_every_screen(action) => {}
            Action::StepRound | Action::BackRound | Action::PageUp | Action::PageDown | Action::PauseResume => {
                self.app.toast =
                    Some("only a history has other moments: record one with --history, and replay it".to_owned());
            }
            _ => self.app.toast = Some("servers are only watched here: no prompt is sent to them".to_owned()),
        }
    }

    /// Moves in a history; whether the action does that.
    fn travel(&mut self, action: Action) -> bool {
        let now = self.past.as_ref().map_or(0, |past| past.now_ms);
        match action {
            Action::StepRound => self.step(true),
            Action::BackRound => self.step(false),
            Action::PageUp => self.show(now.saturating_sub(PAGE_MS)),
            Action::PageDown => self.show(now.saturating_add(PAGE_MS)),
            Action::PauseResume => self.play_or_pause(),
            _ => return false,
        }
        true
    }

    /// Plays from the moment that is shown, at its end from the start.
    fn play_or_pause(&mut self) {
        let Some(past) = &mut self.past else { return };
        past.plays = !past.plays;
        let is_over = past.plays && past.taken == past.samples.len();
        if is_over {
            self.show(0);
        }
    }
}
