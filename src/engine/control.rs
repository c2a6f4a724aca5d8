//! The way in: commands, taken between two phases, and the gate that a pause closes.
//!
//! Invariant: settings change only at the start of a round; a stop lets the round under way end,
//! and opens the gate for it; every step that is asked for is taken, one after the other.

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

/// Steps that may wait behind the one under way; more are dropped, so that a held key ends soon.
const MAX_STEPS: usize = 32;

/// Commands received and what follows from them.
pub(super) struct Control {
    inbox: Receiver<Command>,
    gate: Gate,
    /// Asked for while a step was under way.
    steps: VecDeque<Gate>,
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
            steps: VecDeque::new(),
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
        if lane == Lane::Speculative {
            self.end_step(end_of_round);
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

    /// After a phase: the step that ends with it gives way to the next one.
    fn end_step(&mut self, end_of_round: bool) {
        if self.gate == Gate::Phase || (self.gate == Gate::Round && end_of_round) {
            self.gate = self.steps.pop_front().unwrap_or(Gate::Closed);
        }
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
            Command::StepPhase => self.step(Gate::Phase, outbox),
            Command::StepRound => self.step(Gate::Round, outbox),
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

    fn step(&mut self, step: Gate, outbox: &mut Outbox) {
        match self.gate {
            Gate::Phase | Gate::Round if self.steps.len() < MAX_STEPS => self.steps.push_back(step),
            Gate::Phase | Gate::Round => {}
            Gate::Open | Gate::Closed => self.close(step, outbox),
        }
    }

    fn close(&mut self, gate: Gate, outbox: &mut Outbox) {
        if self.gate == Gate::Open {
            outbox.send(Lane::Speculative, EventKind::Paused);
        }
        self.steps.clear();
        self.gate = gate;
    }

    fn open(&mut self, outbox: &mut Outbox) {
        self.steps.clear();
        if self.gate != Gate::Open {
            self.gate = Gate::Open;
            outbox.send(Lane::Speculative, EventKind::Resumed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    fn held() -> (Sender<Command>, Control, Outbox) {
        let (commands, inbox) = channel();
        let mut outbox = Outbox::new(tokio::sync::mpsc::unbounded_channel().0);
        let mut control = Control::new(inbox, Settings::default());
        control.obey(Command::Pause, &mut outbox);
        (commands, control, outbox)
    }

    /// How many phases pass before the engine holds; every third ends a round.
    fn passed(control: &mut Control) -> usize {
        let mut phases = 0;
        while control.gate != Gate::Closed {
            phases += 1;
            control.end_step(phases % 3 == 0);
        }
        phases
    }

    #[test]
    fn every_step_counts_however_quickly_they_come() {
        let (_commands, mut control, mut outbox) = held();
        for (steps, phases) in [
            (vec![Command::StepRound, Command::StepRound], 6),
            (vec![Command::StepPhase, Command::StepPhase, Command::StepPhase], 3),
            (vec![Command::StepPhase, Command::StepRound, Command::StepPhase], 4),
        ] {
            steps.into_iter().for_each(|step| control.obey(step, &mut outbox));
            assert_eq!(passed(&mut control), phases);
        }
    }

    #[test]
    fn a_pause_or_a_resume_forgets_the_steps_that_wait() {
        let (_commands, mut control, mut outbox) = held();
        for (end, gate) in [(Command::Pause, Gate::Closed), (Command::Resume, Gate::Open)] {
            (0..100).for_each(|_| control.obey(Command::StepRound, &mut outbox));
            assert_eq!(control.steps.len(), MAX_STEPS);
            control.obey(end, &mut outbox);
            assert_eq!((control.gate, control.steps.len()), (gate, 0));
        }
    }
}
