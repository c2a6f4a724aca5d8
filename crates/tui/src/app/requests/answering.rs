//! Prompts that were sent and answers in progress: what the engine has yet to answer, what it refused, what is not
//! saved.

use draftscope_protocol::{Lane, Settings, StopReason};
use draftscope_session::{Session, Timeline, Turn};

use crate::app::place::page::Page;
use crate::app::requests::Requests;
use crate::app::{App, Awaiting};

impl Requests {
    /// Whether a prompt was sent that no event mentions yet.
    pub(crate) fn is_awaiting(&self, session: &Session) -> bool {
        let still = |sent: &Awaiting| session.turns().len() == sent.turns && session.notices_seen() == sent.notices;
        self.awaiting.as_ref().is_some_and(still) && session.failure().is_none() && self.lost.is_none()
    }

    /// Remembers a prompt that is sent.
    pub(crate) fn await_answer(&mut self, session: &Session, text: String) {
        let (turns, notices) = (session.turns().len(), session.notices_seen());
        self.awaiting = Some(Awaiting { text, turns, notices, is_typed: false });
    }

    /// Settings as the user wants them: current ones, or requested and not yet in force.
    pub(crate) fn settings(&self, session: &Session) -> Settings {
        let requested = self.wanted.filter(|(base, _)| base == session.settings());
        requested.map_or(*session.settings(), |(_, wanted)| wanted)
    }

    /// Remembers settings that are asked for.
    pub(crate) fn want(&mut self, session: &Session, settings: Settings) {
        self.wanted = Some((*session.settings(), settings));
    }
}

impl App {
    /// Whether the key that opens a selected token goes to the prompt: where nothing is selected, in the present.
    pub(crate) fn opens_prompt(&self, time: &Timeline) -> bool {
        let selects_none = self.place.selected.is_none() && self.place.cell.is_none() && !time.is_past();
        self.place.page == Page::Chat && selects_none && !self.is_typing() && !self.clock.is_recording
    }

    /// Whether an answer is in progress or a prompt on its way.
    pub(crate) fn is_busy(&self, session: &Session) -> bool {
        !self.requests.has_ended
            && (session.is_generating() || self.requests.is_awaiting(session) || self.learning.left.is_some())
    }

    /// Puts a prompt that could not be answered back into the prompt box.
    pub(crate) fn return_refused(&mut self, session: &Session) {
        let waits = |sent: &Awaiting| sent.is_typed && session.turns().len() == sent.turns;
        if self.requests.awaiting.as_ref().is_some_and(waits) && !self.requests.is_awaiting(session) {
            self.place.return_to_prompt();
        }
        let is_refused = |turn: &&Turn| turn.answer(Lane::Speculative).finished == Some(StopReason::Refused);
        let Some(turn) = session.turn().filter(is_refused).filter(|turn| turn.number != self.talk.refused) else {
            return;
        };
        self.talk.refused = turn.number;
        if self.talk.editor.is_empty() && turn.branch.is_none() && !self.clock.is_recording {
            self.talk.editor.replace(&turn.typed);
            self.place.return_to_prompt();
        }
    }

    /// Whether the session has answers that are in no file and could be saved.
    pub(crate) fn is_unsaved(&self, time: &Timeline) -> bool {
        let own = self.learning.aside.as_ref().unwrap_or(time).live();
        let can_save = self.options.save.is_some() && !self.options.is_recorded;
        let is_live = own.header().is_some_and(|header| header.capabilities.can_generate);
        can_save && is_live && own.stats(Lane::Speculative).output_tokens() > self.leaving.saved
    }
}
