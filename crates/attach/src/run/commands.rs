//! What the user asks of an attached run while it goes on.

use std::sync::mpsc::TryRecvError;

use draftscope_protocol::stream::Step;
use draftscope_protocol::{Command, EventKind, Settings};

use super::Run;

impl Run<'_> {
    /// Obeys what has been asked.
    pub(super) fn poll(&mut self) {
        loop {
            match self.inbox.try_recv() {
                Ok(command) => self.obey(command),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.is_over = true;
                    return;
                }
            }
        }
    }

    pub(super) fn obey(&mut self, command: Command) {
        match command {
            Command::Generate { prompt } => self.prompts.push(prompt),
            Command::Stop => {
                self.is_stopped = true;
                self.prompts.clear();
                self.open();
            }
            Command::Shutdown => self.is_over = true,
            Command::Pause => {
                let was_open = self.gate.close();
                self.report_pause(was_open);
            }
            Command::StepPhase => {
                let was_open = self.gate.step(Step::Phase);
                self.report_pause(was_open);
            }
            Command::StepRound => {
                let was_open = self.gate.step(Step::Round);
                self.report_pause(was_open);
            }
            Command::Resume => self.open(),
            Command::AskRows => self.asks_rows = true,
            Command::SetSampling { sampling } => {
                self.server.send_sampling();
                self.plain.iter_mut().for_each(|plain| plain.send_sampling());
                self.change(Settings { sampling, ..self.settings });
            }
            Command::SetMaxTokens { max_tokens } => self.change(Settings { max_tokens, ..self.settings }),
            Command::Note { text, round, turn } => self.outbox.send(EventKind::Noted { text, round, turn }),
            Command::Bookmark { round, turn, label } => {
                self.outbox.send(EventKind::Bookmarked { round, turn, label });
            }
            Command::SetDraftLen { .. }
            | Command::SetAutoDraftLen
            | Command::SetRule { .. }
            | Command::SetLeniency { .. }
            | Command::SetDrafter { .. }
            | Command::SetDrafting { .. } => {
                let name = self.server.name();
                self.outbox.notice(format!("drafting is set where {name} is started; it cannot be changed from here"));
            }
            Command::SetBaseline { .. } | Command::SetRival { .. } | Command::FinishPlain { .. } => {
                let name = self.server.name();
                self.outbox.notice(format!("{name} decodes nothing beside the answer"));
            }
            // those of the server are its own
            Command::SetThreads { .. }
            | Command::ProposeDraft { .. }
            | Command::SetSpeed { .. }
            | Command::SkipTo { .. }
            | Command::SkipToNext { .. }
            | Command::PlayListed { .. } => {}
        }
    }

    /// Changes settings from the next prompt on.
    fn change(&mut self, settings: Settings) {
        match settings.validate() {
            Ok(()) => {
                self.settings = settings;
                self.outbox.send(EventKind::SettingsChanged { settings });
            }
            Err(error) => self.outbox.notice(format!("setting not changed: {error}")),
        }
    }

    fn report_pause(&mut self, was_open: bool) {
        if was_open {
            self.outbox.send(EventKind::Paused);
        }
    }

    fn open(&mut self) {
        if self.gate.open() {
            self.outbox.send(EventKind::Resumed);
        }
    }
}
