//! From chunks to steps. A pure state machine: it reads no clock and no network.
//!
//! Every chunk holds one token, and all chunks of a verification step have the same `predicted_ms` and the same
//! cumulative counts of drafts. So the difference of the counts is the step's k and its number of accepted drafts.
//!
//! Invariant: whatever the chunks say, every token is output once, in order; a step has at most [`MAX_DRAFTS`] drafts,
//! accepts at most what it drafted, and the clock never runs backwards. Counts that contradict each other are cut to
//! these limits, and reported once.

use serde_json::Value;

use crate::doubts::Doubts;
use crate::errors::{error_of, is_error};
use crate::names::Names;
use crate::server::{Line, Reader};
use crate::sse::{Events, Sent};
use crate::step::{MAX_DRAFTS, Part, Step};
use draftscope_protocol::{Piece, StopReason, TokenId};

use super::chunk::{Chunk, Timings};

/// Collects chunks of one answer.
#[derive(Debug, Default)]
pub struct Rounds {
    events: Events,
    left_out: Doubts,
    has_first: bool,
    has_ended: bool,
    doubts: bool,
    /// Whether steps may have been counted together, since a token had no chunk.
    merges: bool,
    open: Option<Open>,
    drafted: u64,
    accepted: u64,
    predicted: u64,
    first_ms: f64,
    clock_us: u64,
}

/// A step whose tokens are still arriving.
#[derive(Debug, PartialEq)]
struct Open {
    key: (f64, u64),
    step: Step,
}

impl Open {
    fn is_complete(&self) -> bool {
        self.step.tokens.len() > self.step.accepted
    }
}

impl Reader for Rounds {
    fn line(&mut self, line: &str, _at_us: u64, names: &mut Names) -> Line {
        Line::of(self.events.line(line), |sent| match sent {
            Sent::Done => Ok(Vec::new()),
            Sent::Error(json) => Err(error_of(&json)),
            Sent::Json(json) if is_error(&json) => Err(error_of(&json)),
            Sent::Json(json) => Ok(self.json(json, names)),
            Sent::Garbage(text) => {
                self.left_out.note(&text);
                Ok(Vec::new())
            }
        })
    }

    fn close(&mut self) -> Vec<Part> {
        let step = self.end_step();
        step.into_iter().chain(self.left_out.notice()).collect()
    }
}

/// Fields of which every chunk has some.
const FIELDS: &[&str] = &["content", "tokens", "stop", "timings", "generation_settings", "index", "prompt_progress"];

impl Rounds {
    /// Takes JSON, by all that is known a chunk; what is none is noted.
    fn json(&mut self, json: Value, names: &Names) -> Vec<Part> {
        let is_chunk = json
            .as_object()
            .is_some_and(|chunk| chunk.is_empty() || FIELDS.iter().any(|name| chunk.contains_key(*name)));
        if !is_chunk {
            self.left_out.note(&json.to_string());
            return Vec::new();
        }
        serde_json::from_value::<Chunk>(json).map_or_else(|_| Vec::new(), |chunk| self.push(&chunk, names))
    }

    /// Takes the next chunk. `names` holds the texts of tokens of the prompt: control tokens are named after them.
    pub fn push(&mut self, chunk: &Chunk, names: &Names) -> Vec<Part> {
        let mut parts = Vec::new();
        if self.has_ended {
            return parts;
        }
        let timings = chunk.timings.clone().unwrap_or_default();
        self.take_tokens(chunk, &timings, names, &mut parts);
        if chunk.stop {
            parts.extend(self.end_step());
            parts.extend(self.left_out.notice());
            parts.push(Part::End(match chunk.stop_type.as_str() {
                "limit" => StopReason::MaxTokens,
                _ => StopReason::Eos,
            }));
            self.has_ended = true;
        }
        parts
    }

    /// The step that was under way.
    fn end_step(&mut self) -> Option<Part> {
        self.open.take().map(|open| Part::Step(open.step))
    }

    fn take_tokens(&mut self, chunk: &Chunk, timings: &Timings, names: &Names, parts: &mut Vec<Part>) {
        let pieces = pieces(chunk, names);
        // a token whose character was not complete had no chunk of its own
        let news = timings.predicted_n.saturating_sub(self.predicted);
        let lost = (news as usize).saturating_sub(pieces.len()).min(MAX_DRAFTS);
        self.predicted = self.predicted.max(timings.predicted_n);
        let mut pieces = std::iter::repeat_with(Piece::unknown).take(lost).chain(pieces).peekable();
        if !self.has_first
            && let Some(token) = pieces.next()
        {
            self.has_first = true;
            self.first_ms = if timings.predicted_n <= 1 { finite(timings.predicted_ms) } else { 0.0 };
            let cached = u32::try_from(timings.cache_n).unwrap_or(u32::MAX);
            parts.push(Part::First { token, row: None, cached, took_us: micros(timings.prompt_ms) });
        }
        for piece in pieces {
            self.take_token(piece, timings, parts);
        }
    }

    fn take_token(&mut self, piece: Piece, timings: &Timings, parts: &mut Vec<Part>) {
        let key = (finite(timings.predicted_ms), timings.draft_n);
        let is_same = |open: &mut Open| open.key == key || (piece.id.is_unknown() && !open.is_complete());
        if self.open.as_mut().is_some_and(|open| !is_same(open)) {
            parts.extend(self.end_step());
        }
        if self.open.is_none() {
            // its chunk is missing, so its step has no counts of its own
            if piece == Piece::unknown() && !std::mem::replace(&mut self.merges, true) {
                parts.push(Part::Notice(
                    "the server does not report a part of a character: rounds there may be counted together".to_owned(),
                ));
            }
            let step = self.next_step(timings, parts);
            self.open = Some(Open { key, step });
        }
        let Some(open) = &mut self.open else { return };
        open.step.tokens.push(piece);
        if open.is_complete() {
            parts.extend(self.end_step());
        }
    }

    /// A step without tokens: what the counts rose by since the last one.
    fn next_step(&mut self, timings: &Timings, parts: &mut Vec<Part>) -> Step {
        let drafted = timings.draft_n.saturating_sub(self.drafted);
        let accepted = timings.draft_n_accepted.saturating_sub(self.accepted);
        let contradicts = drafted > MAX_DRAFTS as u64
            || accepted > drafted
            || timings.draft_n < self.drafted
            || timings.draft_n_accepted < self.accepted;
        if contradicts && !std::mem::replace(&mut self.doubts, true) {
            parts.push(Part::Notice(
                "the server's counts of drafts contradict each other: acceptance may be wrong here".to_owned(),
            ));
        }
        self.drafted = self.drafted.max(timings.draft_n);
        self.accepted = self.accepted.max(timings.draft_n_accepted);
        self.clock_us = self.clock_us.max(micros(finite(timings.predicted_ms) - self.first_ms));
        let drafted = (drafted as usize).min(MAX_DRAFTS);
        Step { drafted, accepted: (accepted as usize).min(drafted), clock_us: self.clock_us, ..Step::default() }
    }
}

/// The tokens of a chunk. Text without an id, such as what a stop word had held back, is a token of unknown id.
fn pieces(chunk: &Chunk, names: &Names) -> Vec<Piece> {
    let text = chunk.content.as_str();
    match chunk.tokens.as_slice() {
        [] if text.is_empty() => Vec::new(),
        [] => vec![Piece::new(TokenId::UNKNOWN, text)],
        [before @ .., last] => {
            let silent = |id: &u32| names.control(TokenId(*id));
            let last = if text.is_empty() { silent(last) } else { Piece::new(TokenId(*last), text) };
            before.iter().take(MAX_DRAFTS).map(silent).chain([last]).collect()
        }
    }
}

fn finite(ms: f64) -> f64 {
    if ms.is_finite() { ms.clamp(0.0, 1e12) } else { 0.0 }
}

fn micros(ms: f64) -> u64 {
    (finite(ms) * 1e3).round() as u64
}

#[cfg(test)]
mod tests;
