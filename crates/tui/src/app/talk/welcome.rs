//! The empty screen: when it is shown, and its starter prompts.

use draftscope_session::Session;

use crate::app::App;
use crate::app::place::page::{Page, Pane};
use crate::app::talk::Talk;
use crate::app::talk::starters::STARTERS;

impl Talk {
    /// The starter prompt that is in the prompt box unchanged.
    pub(crate) fn chosen_starter(&self) -> Option<usize> {
        self.starter.filter(|index| self.editor.text() == STARTERS[*index].0)
    }
}

impl App {
    /// Whether the screen waits for the first prompt of all.
    pub(crate) fn is_welcome(&self, session: &Session) -> bool {
        let can_generate = session.header().is_some_and(|header| header.capabilities.can_generate);
        let is_bare = session.turns().is_empty() && !self.requests.is_awaiting(session) && self.clock.tour.is_none();
        self.place.page == Page::Chat && can_generate && is_bare && self.requests.lost.is_none()
    }

    /// Whether Up and Down choose a starter prompt: nothing else is typed.
    pub(crate) fn offers_starters(&self, session: &Session) -> bool {
        self.is_welcome(session) && (self.talk.editor.is_empty() || self.talk.chosen_starter().is_some())
    }

    /// Puts the next starter prompt, or the one before, into the prompt box.
    pub(crate) fn offer_starter(&mut self, up: bool) {
        let last = STARTERS.len() - 1;
        self.take_starter(match (self.talk.chosen_starter(), up) {
            (None | Some(0), true) => last,
            (Some(index), true) => index - 1,
            (Some(index), false) if index < last => index + 1,
            _ => 0,
        });
    }

    /// Puts a starter prompt into the prompt box.
    pub(crate) fn take_starter(&mut self, index: usize) {
        self.talk.editor.replace(STARTERS[index].0);
        (self.talk.starter, self.place.pane) = (Some(index), Pane::Prompt);
    }
}
