//! One answer of one lane: from what was read to events.
//!
//! Invariant: after its end nothing changes it; before `prefilled` there is no round. An answer ends, whatever the server
//! sends: it has little more than the requested tokens, and few lines without any.

use std::sync::Arc;
use std::time::Duration;

use draftscope_http::{HttpError, Secrets};
use draftscope_protocol::{EventKind, Lane, Piece, Prefilled, StopReason, TokenId};

use super::read::Read;
use super::server::{Line, Reader, Server, in_words};
use super::socket::join::{Joined, Plugin};
use super::spread::Spread;
use super::step::{MAX_DRAFTS, Part, unreported};

/// Most lines in an answer that are no chunks, before it is given up.
const MAX_GARBAGE: u32 = 16;

/// Most bytes that a server sends without anything of the answer, such as comments, before it is given up.
const MAX_IDLE_BYTES: usize = 64 << 20;

/// Longest reason that is shown, in characters.
const LONGEST_REASON: usize = 300;

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
    /// When the last part of the answer came, in microseconds since the request.
    last_us: u64,
    /// Longest time without any part of the answer, in microseconds.
    longest_us: u64,
    /// Most tokens of the answer before it is given up.
    max_tokens: usize,
    pub(super) ended: Option<StopReason>,
}

/// What something that was read leads to.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) events: Vec<EventKind>,
    /// The server refused an option that it can do without: the request should be sent once more.
    pub(super) again: bool,
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
            last_us: 0,
            longest_us: u64::MAX,
            max_tokens: usize::MAX,
            ended: None,
        }
    }

    /// The same answer, which is given up if it has more than so many tokens, and those of a last round.
    pub(super) fn at_most(self, tokens: u32) -> Self {
        Self { max_tokens: (tokens as usize).saturating_add(MAX_DRAFTS + 1), ..self }
    }

    /// The same answer, which is given up after so long without any part of it, whatever else is sent.
    pub(super) fn within(self, longest: Duration) -> Self {
        Self { longest_us: u64::try_from(longest.as_micros()).unwrap_or(u64::MAX), ..self }
    }

    /// The same answer, with the detail that the engine's plugin reports.
    pub(super) fn joined(mut self, plugin: Option<&Arc<Plugin>>) -> Self {
        if let Some(plugin) = plugin.filter(|_| self.lane == Lane::Speculative) {
            self.reader = Box::new(Joined::new(self.reader, plugin));
        }
        self
    }

    /// The same answer without these secrets, also where tokens hold parts of one.
    pub(super) fn hiding(mut self, secrets: &Arc<Secrets>) -> Self {
        self.reader = Box::new(Spread::new(self.reader, secrets));
        self
    }

    /// Takes what was read.
    pub(super) fn take(&mut self, read: Read, server: &mut dyn Server) -> Taken {
        let line = match read.line {
            Ok(Some(line)) => line,
            Ok(None) => return self.close(server, Some(&anew("the server closed the connection"))),
            Err(error @ HttpError::Status { .. }) if !self.has_first => return self.refused(&error, server),
            Err(error) => return self.close(server, Some(&anew(&error.to_string()))),
        };
        let bytes = line.len() + 64; // a line costs something, also a blank one
        match self.reader.line(&line, read.at_us, server.names()) {
            Line::Empty => self.idle((bytes, read.at_us), server),
            Line::Garbage if self.garbage < MAX_GARBAGE => {
                self.garbage += 1;
                Taken::default()
            }
            Line::Garbage => self.close(server, Some(&anew("the server sends no chunks"))),
            Line::Error(message) => match server.relax(&message).filter(|_| !self.has_first) {
                Some(notice) => again(notice),
                None => self.close(server, Some(&beginning(&message))),
            },
            Line::Parts(parts) if parts.is_empty() => self.idle((bytes, read.at_us), server),
            Line::Parts(parts) => {
                self.idle_bytes = 0;
                self.last_us = read.at_us;
                let mut events = self.parts(parts, server);
                if self.ended.is_none() && self.tokens.len() - self.prompt_len > self.max_tokens {
                    let why = anew("the server sends more tokens than it was asked for");
                    events.extend(self.close(server, Some(&why)).events);
                }
                Taken { events, again: false }
            }
        }
    }

    /// The server answered with an error in place of an answer.
    fn refused(&mut self, error: &HttpError, server: &mut dyn Server) -> Taken {
        let HttpError::Status { status, message, .. } = error else {
            return self.close(server, Some(&anew(&error.to_string())));
        };
        let is_about_key = matches!(status, 401 | 403);
        if !is_about_key && let Some(notice) = server.relax(message) {
            return again(notice);
        }
        if !(400..=499).contains(status) {
            let why = in_words(error, server.client(), self.lane == Lane::Plain);
            return self.close(server, Some(&beginning(&why)));
        }
        self.ended = Some(StopReason::Refused);
        notice(match is_about_key {
            true => in_words(error, server.client(), self.lane == Lane::Plain),
            false => format!("{} refuses the prompt: {message}", server.name()),
        })
    }

    /// A line that counts as so many bytes, and came at this time, says nothing of the answer.
    fn idle(&mut self, (bytes, at_us): (usize, u64), server: &mut dyn Server) -> Taken {
        self.idle_bytes = self.idle_bytes.saturating_add(bytes);
        if self.idle_bytes > MAX_IDLE_BYTES {
            return self.close(server, Some(&anew("the server sends no part of the answer any more")));
        }
        if at_us.saturating_sub(self.last_us) > self.longest_us {
            let seconds = self.longest_us / 1_000_000;
            let why =
                format!("the server has sent no part of the answer for {seconds} s (--patience), only other lines");
            return self.close(server, Some(&anew(&why)));
        }
        Taken::default()
    }

    /// Nothing more is read: because it was stopped, or broke off for this reason.
    pub(super) fn close(&mut self, server: &mut dyn Server, why: Option<&str>) -> Taken {
        let parts = self.reader.close();
        let mut taken = Taken { events: self.parts(parts, server), again: false };
        if self.ended.is_some() {
            return taken;
        }
        self.ended = Some(if why.is_some() { StopReason::BrokenOff } else { StopReason::Stopped });
        if let Some(why) = why {
            let what = if self.lane == Lane::Plain { "the plain answer" } else { "the answer" };
            let message = format!("{what} broke off: {why}");
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
                    events.push(EventKind::Prefilled(Prefilled {
                        turn: self.turn,
                        prompt,
                        cached,
                        first: token,
                        row,
                        took_us,
                    }));
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

/// A reason that lies in the connection, with the next step. Another prompt does not help against a server's own error.
fn anew(why: &str) -> String {
    format!("{}; send the prompt again to connect anew", beginning(why))
}

/// As much of a reason as is shown.
fn beginning(why: &str) -> String {
    why.chars().take(LONGEST_REASON).collect()
}

fn notice(message: String) -> Taken {
    Taken { events: vec![EventKind::Notice { message }], again: false }
}

/// The prompt is sent once more, for this reason.
fn again(message: String) -> Taken {
    Taken { again: true, ..notice(message) }
}
