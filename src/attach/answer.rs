//! One answer of one lane: from what was read to events.
//!
//! Invariant: after its end nothing changes it; before `prefilled` there is no round. An answer ends, whatever the server
//! sends: it has little more than the requested tokens, and few lines without any.

use std::sync::Arc;

use crate::http::HttpError;
use crate::protocol::{EventKind, Lane, Piece, StopReason, TokenId};

use super::read::Read;
use super::server::{Line, Reader, Server};
use super::socket::join::{Joined, Plugin};
use super::step::{MAX_DRAFTS, Part, unreported};

/// Most lines in an answer that are no chunks, before it is given up.
const MAX_GARBAGE: u32 = 16;

/// Most bytes that a server sends without anything of the answer, such as comments, before it is given up.
const MAX_IDLE_BYTES: usize = 64 << 20;

/// How far an answer has come.
pub(super) struct Answer {
    pub(super) lane: Lane,
    turn: u32,
    reader: Box<dyn Reader>,
    prompt: Vec<Piece>,
    /// Ids of the prompt and of the answer so far.
    pub(super) tokens: Vec<TokenId>,
    /// How many of them are the prompt's.
    pub(super) prompt_len: usize,
    pub(super) has_first: bool,
    /// The answer's first round has the number after this one.
    before: u32,
    /// Number of the last round.
    pub(super) round: u32,
    garbage: u32,
    /// Bytes since the last part of the answer.
    idle_bytes: usize,
    /// Most tokens of the answer before it is given up.
    max_tokens: usize,
    pub(super) ended: Option<StopReason>,
}

/// What something that was read leads to.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) events: Vec<EventKind>,
    /// The server refused an option that it can do without: the request should be sent once more.
    pub(super) refusal: Option<String>,
}

impl Answer {
    /// An answer that begins, whose first round has the number after `round`.
    pub(super) fn new(lane: Lane, turn: u32, round: u32, (reader, prompt): (Box<dyn Reader>, Vec<Piece>)) -> Self {
        Self {
            lane,
            turn,
            reader,
            prompt,
            tokens: Vec::new(),
            prompt_len: 0,
            has_first: false,
            before: round,
            round,
            garbage: 0,
            idle_bytes: 0,
            max_tokens: usize::MAX,
            ended: None,
        }
    }

    /// The same answer, which is given up if it has more than so many tokens, and those of a last round.
    pub(super) fn at_most(self, tokens: u32) -> Self {
        Self { max_tokens: (tokens as usize).saturating_add(MAX_DRAFTS + 1), ..self }
    }

    /// The same answer, with the detail that the engine's plugin reports.
    pub(super) fn joined(mut self, plugin: Option<&Arc<Plugin>>) -> Self {
        if let Some(plugin) = plugin.filter(|_| self.lane == Lane::Speculative) {
            self.reader = Box::new(Joined::new(self.reader, plugin));
        }
        self
    }

    /// Takes what was read.
    pub(super) fn take(&mut self, read: Read, server: &mut dyn Server) -> Taken {
        let line = match read.line {
            Ok(Some(line)) => line,
            Ok(None) => return self.close(server, Some("the server closed the connection")),
            Err(HttpError::Status { status: 400..=499, message, .. }) if !self.has_first => {
                if server.relax(&message) {
                    return Taken { refusal: Some(message), ..Taken::default() };
                }
                self.ended = Some(StopReason::Refused);
                return notice(format!("{} refuses the prompt: {message}", server.name()));
            }
            Err(error) => return self.close(server, Some(&error.to_string())),
        };
        let bytes = line.len() + 64; // a line costs something, also a blank one
        match self.reader.line(&line, read.at_us, server.names()) {
            Line::Empty => self.idle(bytes, server),
            Line::Garbage if self.garbage < MAX_GARBAGE => {
                self.garbage += 1;
                Taken::default()
            }
            Line::Garbage => self.close(server, Some("the server sends no chunks")),
            Line::Error(message) => self.close(server, Some(&message)),
            Line::Parts(parts) if parts.is_empty() => self.idle(bytes, server),
            Line::Parts(parts) => {
                self.idle_bytes = 0;
                let mut events = self.parts(parts, server);
                if self.ended.is_none() && self.tokens.len() - self.prompt_len > self.max_tokens {
                    let why = "the server sends more tokens than it was asked for";
                    events.extend(self.close(server, Some(why)).events);
                }
                Taken { events, refusal: None }
            }
        }
    }

    /// A line that counts as so many bytes says nothing of the answer.
    fn idle(&mut self, bytes: usize, server: &mut dyn Server) -> Taken {
        self.idle_bytes = self.idle_bytes.saturating_add(bytes);
        match self.idle_bytes > MAX_IDLE_BYTES {
            true => self.close(server, Some("the server sends no part of the answer any more")),
            false => Taken::default(),
        }
    }

    /// Nothing more is read: because it was stopped, or broke off for this reason.
    pub(super) fn close(&mut self, server: &mut dyn Server, why: Option<&str>) -> Taken {
        let parts = self.reader.close();
        let mut taken = Taken { events: self.parts(parts, server), refusal: None };
        if self.ended.is_some() {
            return taken;
        }
        self.ended = Some(if why.is_some() { StopReason::BrokenOff } else { StopReason::Stopped });
        if let Some(why) = why {
            let why: String = why.chars().take(300).collect();
            let what = if self.lane == Lane::Plain { "the plain answer" } else { "the answer" };
            let message = format!("{what} broke off: {why}; send the prompt again to connect anew");
            taken.events.push(EventKind::Notice { message });
        }
        taken
    }

    fn parts(&mut self, parts: Vec<Part>, server: &mut dyn Server) -> Vec<EventKind> {
        let mut events = Vec::new();
        for part in parts {
            match part {
                Part::Prompt(prompt) => self.prompt = prompt,
                Part::Notice(message) => events.push(EventKind::Notice { message }),
                Part::End(reason) => self.ended = Some(reason),
                Part::Recounted(rounds) if self.round > self.before => {
                    self.round = self.before.saturating_add(u32::try_from(rounds.len()).unwrap_or(u32::MAX));
                    events.push(EventKind::Recounted { rounds });
                }
                Part::Recounted(_) => {}
                Part::First { token, row, cached, took_us } => {
                    self.has_first = true;
                    server.names().learn(&token);
                    let prompt = std::mem::take(&mut self.prompt);
                    self.tokens = prompt.iter().chain([&token]).map(|piece| piece.id).collect();
                    self.prompt_len = prompt.len();
                    let row = row.unwrap_or_else(unreported);
                    events.push(EventKind::Prefilled { turn: self.turn, prompt, cached, first: token, row, took_us });
                }
                Part::Step(step) => {
                    step.tokens.iter().for_each(|piece| server.names().learn(piece));
                    let base = u32::try_from(self.tokens.len().saturating_sub(1)).unwrap_or(u32::MAX);
                    self.tokens.extend(step.tokens.iter().map(|piece| piece.id));
                    self.round = self.round.saturating_add(1);
                    events.extend(step.events(self.round, base));
                }
            }
        }
        events
    }
}

fn notice(message: String) -> Taken {
    Taken { events: vec![EventKind::Notice { message }], refusal: None }
}
