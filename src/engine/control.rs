//! The way in: commands, taken between two phases, and the gate that a pause closes.
//!
//! Invariant: settings change only at the start of a round; a stop lets the round under way end,
//! and opens the gate for it.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use crate::protocol::{Command, DraftLenMode, EventKind, Lane, Prompt, Settings};

use super::outbox::Outbox;

/// What a paused engine may still do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    Closed,
    /// One phase, then closed.
    Phase,
    /// To the end of the round, then closed.
    Round,
}

/// Commands received and what follows from them.
pub(super) struct Control {
    inbox: Receiver<Command>,
    gate: Gate,
    prompts: VecDeque<Prompt>,
    /// As they are wanted; [`Control::take_settings`] puts them in force.
    settings: Settings,
    changed: bool,
    stop: bool,
    shutdown: bool,
    /// What the person drafted.
    typed: Option<String>,
}

impl Control {
    pub(super) fn new(inbox: Receiver<Command>, settings: Settings) -> Self {
        Self {
            inbox,
            gate: Gate::Open,
            prompts: VecDeque::new(),
            settings,
            changed: false,
            stop: false,
            shutdown: false,
            typed: None,
        }
    }

    pub(super) fn settings(&self) -> Settings {
        self.settings
    }

    /// Whether the turn should end after this round.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop || self.shutdown
    }

    /// Notes the k that the engine chose itself: no change of settings.
    pub(super) fn note_draft_len(&mut self, draft_len: u8) {
        self.settings.draft_len = draft_len;
    }

    /// Settings that changed since the last call.
    pub(super) fn take_settings(&mut self) -> Option<Settings> {
        std::mem::take(&mut self.changed).then_some(self.settings)
    }

    /// Waits for a prompt; none means the run is over.
    pub(super) fn next_prompt(&mut self, outbox: &mut Outbox) -> Option<Prompt> {
        self.stop = false;
        loop {
            if self.shutdown {
                return None;
            }
            if let Some(prompt) = self.prompts.pop_front() {
                return Some(prompt);
            }
            match self.inbox.recv() {
                Ok(command) => self.obey(command, outbox),
                Err(_) => self.shutdown = true,
            }
            self.stop = false; // nothing runs that could be stopped
            if let Some(settings) = self.take_settings() {
                outbox.send(Lane::Speculative, EventKind::SettingsChanged { settings });
            }
        }
    }

    /// Takes waiting commands without holding; whether the turn should end.
    pub(super) fn is_stopped_now(&mut self, outbox: &mut Outbox) -> bool {
        self.poll(outbox);
        self.is_stopped()
    }

    /// Between two phases of a lane: takes waiting commands and, when paused, holds. Returns the time
    /// held. A step is one of the run's own lane; the others go on beside until it is done.
    pub(super) fn between_phases(&mut self, lane: Lane, end_of_round: bool, outbox: &mut Outbox) -> Duration {
        self.poll(outbox);
        if self.is_stopped() {
            return Duration::ZERO; // a step that was asked for is the next answer's
        }
        let is_step = self.gate == Gate::Phase || (self.gate == Gate::Round && end_of_round);
        if is_step && lane == Lane::Speculative {
            self.gate = Gate::Closed;
        }
        if self.gate != Gate::Closed {
            return Duration::ZERO;
        }
        let since = Instant::now();
        while self.gate == Gate::Closed && !self.is_stopped() {
            match self.inbox.recv() {
                Ok(command) => self.obey(command, outbox),
                Err(_) => self.shutdown = true,
            }
        }
        since.elapsed()
    }

    /// Waits for the person's draft. None when the answer is to end, or the settings changed so that
    /// there may be nobody to wait for.
    pub(super) fn wait_for_draft(&mut self, outbox: &mut Outbox) -> Option<String> {
        self.typed = None;
        while self.typed.is_none() && !self.is_stopped() && !self.changed {
            match self.inbox.recv() {
                Ok(command) => self.obey(command, outbox),
                Err(_) => self.shutdown = true,
            }
        }
        self.typed.take()
    }

    fn poll(&mut self, outbox: &mut Outbox) {
        loop {
            match self.inbox.try_recv() {
                Ok(command) => self.obey(command, outbox),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.shutdown = true;
                    return;
                }
            }
        }
    }

    fn obey(&mut self, command: Command, outbox: &mut Outbox) {
        match command {
            Command::Generate { prompt } => self.prompts.push_back(prompt),
            Command::Pause => self.close(Gate::Closed, outbox),
            Command::StepPhase => self.close(Gate::Phase, outbox),
            Command::StepRound => self.close(Gate::Round, outbox),
            Command::Resume => self.open(outbox),
            Command::Stop => {
                self.stop = true;
                self.prompts.clear();
                self.open(outbox);
            }
            Command::Shutdown => self.shutdown = true,
            Command::SetDraftLen { draft_len } => self.change(outbox, |s| {
                s.draft_len = draft_len;
                s.draft_len_mode = DraftLenMode::Fixed;
            }),
            Command::SetAutoDraftLen => self.change(outbox, |s| s.draft_len_mode = DraftLenMode::Auto),
            Command::Note { text, round } => outbox.send(Lane::Speculative, EventKind::Noted { text, round }),
            Command::Bookmark { round, label } => {
                outbox.send(Lane::Speculative, EventKind::Bookmarked { round, label });
            }
            Command::SetSpeed { .. } | Command::SkipTo { .. } | Command::SkipToNext { .. } => {} // for recordings
            Command::SetSampling { sampling } => self.change(outbox, |s| s.sampling = sampling),
            Command::SetRule { rule } => self.change(outbox, |s| s.rule = rule),
            Command::SetLeniency { leniency } => self.change(outbox, |s| s.leniency = leniency),
            Command::SetDrafter { drafter } => self.change(outbox, |s| s.drafter = drafter),
            Command::SetDrafting { drafting } => self.change(outbox, |s| s.drafting = drafting),
            // one that nobody asked for is late: its round is over
            Command::ProposeDraft { text } => self.typed = Some(text),
            Command::SetBaseline { baseline } => self.change(outbox, |s| s.baseline = baseline),
            Command::SetRival { rival } => self.change(outbox, |s| s.rival = rival),
            Command::SetMaxTokens { max_tokens } => self.change(outbox, |s| s.max_tokens = max_tokens),
        }
    }

    fn change(&mut self, outbox: &mut Outbox, change: impl FnOnce(&mut Settings)) {
        let mut wanted = self.settings;
        change(&mut wanted);
        match wanted.validate() {
            Ok(()) => {
                self.changed |= wanted != self.settings;
                self.settings = wanted;
            }
            Err(error) => {
                outbox.send(Lane::Speculative, EventKind::Notice { message: format!("setting not changed: {error}") });
            }
        }
    }

    fn close(&mut self, gate: Gate, outbox: &mut Outbox) {
        if self.gate == Gate::Open {
            outbox.send(Lane::Speculative, EventKind::Paused);
        }
        self.gate = gate;
    }

    fn open(&mut self, outbox: &mut Outbox) {
        if self.gate != Gate::Open {
            self.gate = Gate::Open;
            outbox.send(Lane::Speculative, EventKind::Resumed);
        }
    }
}
