//! Servers that others use, as rows: where the user looks, and what the keys do there.
//!
//! Invariant: what is known of the servers comes from their samples alone; the cursor stands on a server.

use crossterm::event::KeyEvent;

use crate::protocol::ServerSample;
use crate::session::{Fleet, Timeline};

use super::action::Action;
use super::app::{App, Overlay};
use super::help_page::HelpPage;
use super::keymap::Context;
use super::options::TuiOptions;

/// Servers, and where the user looks.
pub struct FleetView {
    pub(super) fleet: Fleet,
    /// Index of the server whose details are shown.
    pub(super) chosen: usize,
    /// Keys and themes.
    pub(super) app: App,
    /// Nothing happens here: for panels that are drawn from a run.
    pub(super) time: Timeline,
}

impl FleetView {
    /// So many servers, of which nothing is known yet.
    #[must_use]
    pub fn new(servers: usize, options: TuiOptions) -> Self {
        Self { fleet: Fleet::new(servers), chosen: 0, app: App::new(options), time: Timeline::new() }
    }

    /// Takes a look at a server.
    pub fn take(&mut self, sample: ServerSample) {
        self.fleet.take(sample);
    }

    /// Whether the user has left.
    #[must_use]
    pub fn quits(&self) -> bool {
        self.app.quits
    }

    /// A key.
    pub fn press(&mut self, key: KeyEvent) {
        let context = if self.app.overlay.is_some() { self.app.context() } else { Context::Watch };
        match self.app.keymap.action(context, key) {
            Some(action) => self.update(action),
            None => {
                if let Some(Overlay::Help(help)) = &mut self.app.overlay {
                    help.input(key);
                }
            }
        }
    }

    pub(super) fn update(&mut self, action: Action) {
        self.app.toast = None;
        match self.app.overlay.take() {
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
            Action::Help => self.app.overlay = Some(Overlay::Help(HelpPage::default())),
            Action::Leave => {}
            _ if self.app.on_every_screen(action) => {}
            _ => self.app.toast = Some("servers are only watched here: no prompt is sent to them".to_owned()),
        }
    }
}
