//! The engine's input: it obeys commands between two phases, and a pause closes its gate.
//!
//! Invariant: settings change only at the start of a round. A stop opens the gate and lets the current round end.
//! Every requested step is taken, one after the other.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use draftscope_protocol::{Command, DraftLenMode, EventKind, Lane, PlainAnswer, Prompt, Settings};

use draftscope_protocol::stream::{Gate, Step};

use super::outbox::Outbox;

/// What the engine is to do next.
pub(super) enum Job {
    Answer(Prompt),
    FinishPlain(PlainAnswer),
}

/// The commands received and the state that follows from them.
pub(super) struct Control {
    inbox: Receiver<Command>,
    gate: Gate,
    prompts: VecDeque<Prompt>,
    /// The plain answer that is to be finished; a prompt is answered first and drops it.
    plain: Option<PlainAnswer>,
    /// As requested; in force once [`Control::take_settings`] has returned them.
    settings: Settings,
    changed: bool,
    stop: bool,
    shutdown: bool,
    /// The person's draft.
    typed: Option<String>,
}

impl Control {
    pub(super) fn new(inbox: Receiver<Command>, settings: Settings) -> Self {
        Self {
            inbox,
            gate: Gate::default(),
            prompts: VecDeque::new(),
            plain: None,
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

    /// Notes a k that the engine chose itself. This is not a change of settings.
    pub(super) fn note_draft_len(&mut self, draft_len: u8) {
        self.settings.draft_len = draft_len;
    }

    /// The settings, if they changed since the last call.
    pub(super) fn take_settings(&mut self) -> Option<Settings> {
        std::mem::take(&mut self.changed).then_some(self.settings)
    }

    /// Whether a prompt waits to be answered.
    pub(super) fn has_prompt(&self) -> bool {
        !self.prompts.is_empty()
    }

    /// Waits for something to do. None when the run is over.
    pub(super) fn next_job(&mut self, outbox: &mut Outbox) -> Option<Job> {
        self.stop = false;
        loop {
            if self.shutdown {
                return None;
            }
            let plain = self.plain.take();
            if let Some(prompt) = self.prompts.pop_front() {
                return Some(Job::Answer(prompt));
            }
            if let Some(plain) = plain {
                return Some(Job::FinishPlain(plain));
            }
            match self.inbox.recv() {
                Ok(command) => self.obey(command, outbox),
                Err(_) => self.shutdown = true,
            }
            self.stop = false; // there is no answer to stop
            if let Some(settings) = self.take_settings() {
                outbox.send(Lane::Speculative, EventKind::SettingsChanged { settings });
            }
        }
    }

    /// Obeys waiting commands without pausing. Returns whether the turn should end.
    pub(super) fn is_stopped_now(&mut self, outbox: &mut Outbox) -> bool {
        self.poll(outbox);
        self.is_stopped()
    }

    /// Drops the steps that the finished answer did not take.
    pub(super) fn end_answer(&mut self) {
        self.gate.forget();
    }

    /// Between two phases of a lane: obeys waiting commands and waits while paused. Returns the time spent waiting.
    /// Only the lane that `leads` counts steps: the run's own lane until it is finished. The others run beside it.
    pub(super) fn between_phases(&mut self, leads: bool, end_of_round: bool, outbox: &mut Outbox) -> Duration {
        self.poll(outbox);
        if self.is_stopped() {
            return Duration::ZERO; // a requested step belongs to the next answer
        }
        if leads {
            self.gate.end(|step| step == Step::Phase || end_of_round);
        }
        if !self.gate.is_closed() {
            return Duration::ZERO;
        }
        outbox.flush();
        let since = Instant::now();
        while self.gate.is_closed() && !self.is_stopped() {
            match self.inbox.recv() {
                Ok(command) => self.obey(command, outbox),
                Err(_) => self.shutdown = true,
            }
        }
        since.elapsed()
    }

    /// Waits for the person's draft. None when the answer should end, or when the settings changed and may name another
    /// drafter.
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
            Command::Pause => close(self.gate.close(), outbox),
            Command::StepPhase => close(self.gate.step(Step::Phase), outbox),
            Command::StepRound => close(self.gate.step(Step::Round), outbox),
            Command::Resume => self.open(outbox),
            Command::Stop => {
                self.stop = true;
                self.prompts.clear();
                self.plain = None;
                self.open(outbox);
            }
            Command::Shutdown => self.shutdown = true,
            Command::SetDraftLen { draft_len } => self.change(outbox, |s| {
                s.draft_len = draft_len;
                s.draft_len_mode = DraftLenMode::Fixed;
            }),
            Command::SetAutoDraftLen => self.change(outbox, |s| s.draft_len_mode = DraftLenMode::Auto),
            Command::Note { text, round, turn } => {
                outbox.send(Lane::Speculative, EventKind::Noted { text, round, turn });
            }
            Command::Bookmark { round, turn, label } => {
                outbox.send(Lane::Speculative, EventKind::Bookmarked { round, turn, label });
            }
            // for recordings
            Command::AskRows
            | Command::SetSpeed { .. }
            | Command::SkipTo { .. }
            | Command::SkipToNext { .. }
            | Command::PlayListed { .. } => {}
            Command::SetSampling { sampling } => self.change(outbox, |s| s.sampling = sampling),
            Command::SetRule { rule } => self.change(outbox, |s| s.rule = rule),
            Command::SetLeniency { leniency } => self.change(outbox, |s| s.leniency = leniency),
            Command::SetDrafter { drafter } => self.change(outbox, |s| s.drafter = drafter),
            Command::SetDrafting { drafting } => self.change(outbox, |s| s.drafting = drafting),
            // an unrequested draft came late: its round is over
            Command::ProposeDraft { text } => self.typed = Some(text),
            Command::FinishPlain { plain } => self.plain = Some(plain),
            Command::SetBaseline { baseline } => self.change(outbox, |s| s.baseline = baseline),
            Command::SetRival { rival } => self.change(outbox, |s| s.rival = rival),
            Command::SetThreads { threads } => self.change(outbox, |s| s.threads = threads),
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

    fn open(&mut self, outbox: &mut Outbox) {
        if self.gate.open() {
            outbox.send(Lane::Speculative, EventKind::Resumed);
        }
    }
}

/// Reports a pause, unless the gate was closed before.
fn close(was_open: bool, outbox: &mut Outbox) {
    if was_open {
        outbox.send(Lane::Speculative, EventKind::Paused);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn only_the_run_s_own_lane_counts_steps() {
        let (commands, inbox) = channel();
        let (outbox, mut events) = tokio::sync::mpsc::unbounded_channel();
        let (mut outbox, mut control) = (Outbox::new(outbox), Control::new(inbox, Settings::default()));
        for command in [Command::Pause, Command::StepRound, Command::StepPhase] {
            commands.send(command).unwrap();
        }
        for (leads, end_of_round) in [(false, true), (true, false), (true, true)] {
            control.between_phases(leads, end_of_round, &mut outbox);
            assert!(!control.gate.is_closed() && !control.gate.is_open(), "{leads} {end_of_round}");
        }
        control.gate.end(|step| step == Step::Phase);
        assert!(control.gate.is_closed(), "both steps are taken");
        commands.send(Command::Resume).unwrap();
        control.between_phases(true, false, &mut outbox);
        let kinds: Vec<_> = std::iter::from_fn(|| events.try_recv().ok()).map(|event| event.kind).collect();
        assert_eq!(kinds, [EventKind::Paused, EventKind::Resumed]);
    }
}
