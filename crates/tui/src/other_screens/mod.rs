//! What the screens without a run have in common: two recordings compared, and watched servers.

pub(crate) mod diff;
pub(crate) mod fleet;

use crate::app::overlay::help_page::HelpPage;
use crate::app::{App, Ask, Overlay};
use crate::input::action::Action;

impl App {
    /// Performs what every screen can do; whether the action was one of these.
    pub(crate) fn on_every_screen(&mut self, action: Action) -> bool {
        match action {
            Action::NextTheme | Action::ChooseTheme => self.turn_theme(true), // there is no list to choose from
            Action::Quit | Action::StopOrQuit => self.leaving.quits = true,
            Action::Suspend => self.requests.asks.push(Ask::Suspend),
            Action::Picture => self.requests.asks.push(Ask::Picture),
            _ => return false,
        }
        true
    }

    /// Performs an action while the help is open: it is closed, or stays.
    pub(crate) fn in_help(&mut self, mut help: HelpPage, action: Action) {
        let (page, last) = (self.place.hit_map.page.max(2) - 1, self.place.hit_map.help_max);
        match action {
            Action::Leave if help.search.is_some() => help = HelpPage::default(),
            Action::Leave => return,
            Action::Help if help.search.is_none() => return,
            _ => drop(help.scroll(action, page, last) || self.on_every_screen(action)),
        }
        self.place.overlay = Some(Overlay::Help(help));
    }
}
