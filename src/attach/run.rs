//! The thread of an attached run: connects, answers prompts, obeys commands.
//!
//! Invariant: a pause or a step concerns the display only: the server continues, and its chunks wait. An answer that
//! breaks off ends as `broken_off` after a sentence that says why, and the next prompt connects anew.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use crate::http::{Client, HttpError};
use crate::protocol::{Command, Event, EventKind, Piece, Prompt, Settings, StopReason};
use crate::stream::{Gate, Step};

use super::AttachConfig;
use super::llama::chunk::Line;
use super::llama::rounds::Rounds;
use super::llama::{self, Llama};
use super::outbox::Outbox;
use super::read;
use super::step::Part;

/// Longest time in which a command is not looked at.
const TICK: Duration = Duration::from_millis(10);

/// Most lines in an answer that are no chunks, before it is given up.
const MAX_GARBAGE: u32 = 16;

/// Runs to the end.
pub(super) fn run(config: &AttachConfig, inbox: Receiver<Command>, sender: UnboundedSender<Event>) {
    let mut outbox = Outbox::new(sender);
    let outcome = catch_unwind(AssertUnwindSafe(|| serve(config, inbox, &mut outbox)));
    let message = match outcome {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error,
        Err(_) => "attaching stopped on an internal error; please report it".to_owned(),
    };
    outbox.send(EventKind::Failed { message });
}

fn serve(config: &AttachConfig, inbox: Receiver<Command>, outbox: &mut Outbox) -> Result<(), String> {
    let client =
        Client::new(&config.url, config.headers.clone(), config.patience).map_err(|error| error.to_string())?;
    outbox.send(EventKind::Loading { stage: format!("asking {}", client.host()), done: 0, total: 0 });
    let llama = Llama::connect(&client).map_err(|error| unrecognised(&error))?;
    let (header, notices) = llama.header(config.settings, outbox.started_unix_ms);
    let settings = header.settings;
    outbox.send(EventKind::Started { header: Box::new(header) });
    notices.into_iter().for_each(|message| outbox.notice(message));
    let mut run = Run {
        llama,
        inbox,
        outbox,
        settings,
        gate: Gate::default(),
        prompts: Vec::new(),
        turn: 0,
        round: 0,
        is_stopped: false,
        is_over: false,
    };
    run.serve();
    Ok(())
}

fn unrecognised(error: &HttpError) -> String {
    match error {
        HttpError::Status { status: 404, host, .. } | HttpError::NotJson { host, .. } => {
            format!("{host} is no llama-server: it has no /props; other engines cannot be attached to yet")
        }
        error => error.to_string(),
    }
}

/// The state of a run.
struct Run<'a> {
    llama: Llama,
    inbox: Receiver<Command>,
    outbox: &'a mut Outbox,
    settings: Settings,
    gate: Gate,
    prompts: Vec<Prompt>,
    turn: u32,
    round: u32,
    is_stopped: bool,
    is_over: bool,
}

/// How far an answer has come.
#[derive(Default)]
struct Progress {
    /// Positions in the server's cache before the next round.
    positions: u32,
    prompt: Vec<Piece>,
    has_first: bool,
}

impl Run<'_> {
    fn serve(&mut self) {
        while !self.is_over {
            self.is_stopped = false;
            if !self.prompts.is_empty() {
                let prompt = self.prompts.remove(0);
                self.answer(&prompt);
                self.gate.forget();
                continue;
            }
            match self.inbox.recv() {
                Ok(command) => self.obey(command),
                Err(_) => self.is_over = true,
            }
        }
    }

    fn answer(&mut self, prompt: &Prompt) {
        self.turn += 1;
        let (turn, text, branch) = (self.turn, prompt.typed().to_owned(), prompt.branch());
        self.outbox.send(EventKind::Prompted { turn, text, branch });
        let reason = match self.begin(prompt) {
            Err(message) => {
                self.outbox.notice(message);
                StopReason::Refused
            }
            Ok((lines, progress)) => self.follow(&lines, progress),
        };
        self.outbox.send(EventKind::Finished { reason });
    }

    fn begin(&mut self, prompt: &Prompt) -> Result<(Receiver<read::Read>, Progress), String> {
        if prompt.typed().trim().is_empty() && prompt.branch().is_none() {
            return Err("the prompt is empty".to_owned());
        }
        let tokens = self.llama.tokens(prompt)?;
        let body = llama::request(&tokens, &self.settings);
        let lines = read::start(self.llama.client(), llama::COMPLETION, body).map_err(|error| error.to_string())?;
        Ok((lines, Progress { positions: tokens.len() as u32, prompt: tokens, has_first: false }))
    }

    /// Follows an answer to its end, or until it is stopped or breaks off.
    fn follow(&mut self, lines: &Receiver<read::Read>, mut progress: Progress) -> StopReason {
        let (mut rounds, mut garbage) = (Rounds::default(), 0);
        loop {
            self.poll();
            if self.is_stopped || self.is_over {
                let rest = rounds.close();
                self.take(rest, &mut progress);
                return StopReason::Stopped;
            }
            let line = match lines.recv_timeout(TICK) {
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) | Ok(Ok(None)) => {
                    let why = "the server closed the connection".to_owned();
                    return self.broken_off(&mut rounds, &mut progress, &why);
                }
                Ok(Err(HttpError::Status { status: 400..=499, message, .. })) if !progress.has_first => {
                    self.outbox.notice(format!("llama-server refuses the prompt: {message}"));
                    return StopReason::Refused;
                }
                Ok(Err(error)) => return self.broken_off(&mut rounds, &mut progress, &error.to_string()),
                Ok(Ok(Some(line))) => line,
            };
            let chunk = match Line::of(&line) {
                Line::Empty => continue,
                Line::Garbage if garbage < MAX_GARBAGE => {
                    garbage += 1;
                    continue;
                }
                Line::Garbage => return self.broken_off(&mut rounds, &mut progress, "the server sends no chunks"),
                Line::Chunk(chunk) => chunk,
            };
            if let Some(error) = &chunk.error {
                return self.broken_off(&mut rounds, &mut progress, &error.message);
            }
            let parts = rounds.push(&chunk, &self.llama.names);
            if let Some(reason) = self.take(parts, &mut progress) {
                return reason;
            }
        }
    }

    fn broken_off(&mut self, rounds: &mut Rounds, progress: &mut Progress, why: &str) -> StopReason {
        let rest = rounds.close();
        self.take(rest, progress);
        let why: String = why.chars().take(300).collect();
        self.outbox.notice(format!("the answer broke off: {why}; send the prompt again to connect anew"));
        StopReason::BrokenOff
    }

    /// Sends parts as events; returns the reason once the answer has ended.
    fn take(&mut self, parts: impl IntoIterator<Item = Part>, progress: &mut Progress) -> Option<StopReason> {
        let mut ended = None;
        for part in parts {
            match part {
                Part::Notice(message) => self.outbox.notice(message),
                Part::End(reason) => ended = Some(reason),
                Part::First { token, cached, took_us } => {
                    progress.has_first = true;
                    self.llama.remember(std::slice::from_ref(&token));
                    let prompt = std::mem::take(&mut progress.prompt);
                    let row = crate::protocol::Prediction { top: Vec::new(), tail: 1.0 };
                    let turn = self.turn;
                    self.outbox.send(EventKind::Prefilled { turn, prompt, cached, first: token, row, took_us });
                }
                Part::Step(step) => {
                    self.llama.remember(&step.tokens);
                    self.round += 1;
                    let committed = step.tokens.len() as u32;
                    for event in step.events(self.round, progress.positions) {
                        self.show(event);
                    }
                    progress.positions = progress.positions.saturating_add(committed);
                }
            }
        }
        ended
    }

    /// Sends an event of a round, once the display is not paused.
    fn show(&mut self, event: EventKind) {
        self.poll();
        while self.gate.is_closed() && !self.is_stopped && !self.is_over {
            match self.inbox.recv() {
                Ok(command) => self.obey(command),
                Err(_) => self.is_over = true,
            }
        }
        let ends_round = matches!(event, EventKind::Committed { .. });
        let ends_phase = ends_round || matches!(event, EventKind::Drafted { .. } | EventKind::Verified { .. });
        self.outbox.send(event);
        self.gate.end(|step| ends_round || (ends_phase && step == Step::Phase));
    }

    fn poll(&mut self) {
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

    fn obey(&mut self, command: Command) {
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
            Command::SetSampling { sampling } => self.change(Settings { sampling, ..self.settings }),
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
                self.outbox.notice("drafting is set where llama-server is started; it cannot be changed from here");
            }
            Command::SetBaseline { .. } | Command::SetRival { .. } | Command::FinishPlain { .. } => {
                self.outbox.notice("llama-server decodes nothing beside the answer");
            }
            Command::ProposeDraft { .. }
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
