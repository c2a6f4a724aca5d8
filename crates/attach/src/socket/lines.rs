//! From lines to whole rounds. Pure: it reads no clock and no socket.
//!
//! Invariant: whatever the lines say, at most [`MAX_OPEN`] rounds of [`MAX_OPEN_BYTES`] are under way, and a round is given out once, whole and
//! checked.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;

use draftscope_protocol::{
    Committed, Drafted, Event, EventKind, Header, Piece, Prediction, RoundStarted, Scored, TRACE_VERSION, Verification,
};

use super::fault::Fault;
use super::round::{MAX_DRAFTS, Round};

/// Most rounds that may be under way: one for each request.
const MAX_OPEN: usize = 256;

/// Most bytes of the lines of all rounds that are under way.
const MAX_OPEN_BYTES: usize = 64 << 20;

/// Longest id of a request, in bytes.
const MAX_REQUEST: usize = 256;

/// Most bytes of a token's text.
const MAX_TEXT: usize = 1024;

/// Most candidates of a row.
const MAX_TOP: usize = 1024;

/// What a line amounts to.
#[derive(Debug, PartialEq)]
pub enum Said {
    /// Nothing that is complete.
    Nothing,
    /// The first line: the engine.
    Header(Box<Header>),
    /// A round of a request is whole.
    Round(String, Box<Round>),
    /// So many rounds were left out since the plugin started, because nobody read them fast enough.
    Dropped(u64),
    /// A sentence of the plugin.
    Notice(String),
}

/// The fields of a line beside those of an event.
#[derive(Deserialize)]
struct Tag<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(default, borrow)]
    request: Option<Cow<'a, str>>,
    #[serde(default)]
    rounds: Option<u64>,
}

/// A round whose lines are arriving.
#[derive(Debug)]
struct Open {
    number: u32,
    base_len: u32,
    draft_len: u8,
    drafts: Vec<Drafted>,
    scored: Option<Scored>,
    verdict: Option<Verification>,
    /// Of its lines so far.
    bytes: usize,
}

/// Collects the lines of one connection.
#[derive(Debug, Default)]
pub struct Collector {
    has_header: bool,
    last_seq: Option<u64>,
    open: HashMap<String, Open>,
}

impl Collector {
    /// Takes the next line.
    ///
    /// # Errors
    /// Names the field that is wrong. The round that it belongs to is forgotten; the next line can be taken.
    pub fn push(&mut self, line: &[u8]) -> Result<Said, Fault> {
        let text = std::str::from_utf8(line).map_err(|error| Fault::new("line", format!("not UTF-8: {error}")))?;
        let tag: Tag<'_> = serde_json::from_str(text).map_err(|error| Fault::new("line", plain(&error)))?;
        if tag.kind == "dropped" {
            return tag.rounds.map(Said::Dropped).ok_or_else(|| Fault::new("rounds", "missing".to_owned()));
        }
        let event =
            Event::of_line(line).map_err(|error| Fault::new("line", format!("{}: {}", tag.kind, plain(&error))))?;
        if !self.has_header {
            return self.header(event);
        }
        if self.last_seq.is_some_and(|last| event.seq <= last) {
            return Err(Fault::new("seq", format!("{} after {}; it must rise", event.seq, self.last_seq.unwrap_or(0))));
        }
        self.last_seq = Some(event.seq);
        self.event(event, tag.request.as_deref(), line.len())
    }

    fn header(&mut self, event: Event) -> Result<Said, Fault> {
        let EventKind::Started { header } = event.kind else {
            return Err(Fault::new("type", "the first line must be `started`".to_owned()));
        };
        if header.version > TRACE_VERSION || header.version == 0 {
            let why = format!("{}; this program reads up to {TRACE_VERSION}", header.version);
            return Err(Fault::new("header.version", why));
        }
        if header.engine.as_ref().is_none_or(|engine| engine.name.is_empty()) {
            return Err(Fault::new("header.engine", "missing: name and version of the engine".to_owned()));
        }
        self.has_header = true;
        self.last_seq = Some(event.seq);
        Ok(Said::Header(header))
    }

    fn event(&mut self, event: Event, request: Option<&str>, bytes: usize) -> Result<Said, Fault> {
        let number = match &event.kind {
            EventKind::Notice { message } => return Ok(Said::Notice(message.chars().take(300).collect())),
            EventKind::Started { .. } => return Err(Fault::new("type", "a second `started`".to_owned())),
            EventKind::RoundStarted(RoundStarted { round, .. })
            | EventKind::Drafted(Drafted { round, .. })
            | EventKind::Scored(Scored { round, .. })
            | EventKind::Verified { round, .. }
            | EventKind::Committed(Committed { round, .. }) => *round,
            _ => return Ok(Said::Nothing),
        };
        // a recording of one run has no requests
        let request = request.unwrap_or("").to_owned();
        if request.len() > MAX_REQUEST {
            return Err(Fault::new("request", format!("longer than {MAX_REQUEST} bytes")));
        }
        let taken = self.take(event, number, &request);
        self.weigh(&request, bytes);
        if taken.is_err() {
            self.open.remove(&request);
        }
        let round = taken?;
        Ok(round.map_or(Said::Nothing, |round| Said::Round(request, Box::new(round))))
    }

    /// A line of so many bytes was added to a round; forgets all rounds under way if they are too large.
    fn weigh(&mut self, request: &str, bytes: usize) {
        if let Some(open) = self.open.get_mut(request) {
            open.bytes += bytes;
        }
        if self.open.values().map(|open| open.bytes).sum::<usize>() > MAX_OPEN_BYTES {
            self.open.clear();
        }
    }

    fn take(&mut self, event: Event, number: u32, request: &str) -> Result<Option<Round>, Fault> {
        if let EventKind::RoundStarted(RoundStarted { base_len, draft_len, .. }) = event.kind {
            if self.open.contains_key(request) {
                return Err(Fault::new(
                    "round",
                    format!("round {number} begins before the one before it is committed"),
                ));
            }
            if self.open.len() >= MAX_OPEN {
                self.open.clear();
            }
            let open = Open { number, base_len, draft_len, drafts: Vec::new(), scored: None, verdict: None, bytes: 0 };
            self.open.insert(request.to_owned(), open);
            return Ok(None);
        }
        let Some(open) = self.open.get_mut(request).filter(|open| open.number == number) else {
            return Err(Fault::new("round", format!("round {number} of this request has no `round_started`")));
        };
        match event.kind {
            EventKind::Drafted(draft) => {
                if draft.row.is_some() {
                    return Err(Fault::new("row", "trees are not read from a socket; send chains".to_owned()));
                }
                let (index, next) = (draft.index, open.drafts.len());
                if usize::from(index) != next || index >= open.draft_len || open.verdict.is_some() {
                    let draft_len = open.draft_len;
                    return Err(Fault::new("index", format!("draft {index} where {next} is next of {draft_len}")));
                }
                check_text("token", [&draft.token])?;
                check_row("top", &draft.top)?;
                open.drafts.push(draft);
            }
            EventKind::Scored(scored) => {
                if scored.rows.len() > MAX_DRAFTS + 1 {
                    return Err(Fault::new("rows", format!("{} rows", scored.rows.len())));
                }
                scored.rows.iter().try_for_each(|row| check_row("rows", row))?;
                open.scored = Some(scored);
            }
            EventKind::Verified { verdict, .. } => open.verdict = Some(verdict),
            EventKind::Committed(Committed { tokens, .. }) => {
                check_text("tokens", &tokens)?;
                let at_us = event.at_us;
                return self.close(request, tokens, at_us).map(Some);
            }
            _ => {}
        }
        Ok(None)
    }

    fn close(&mut self, request: &str, committed: Vec<Piece>, at_us: u64) -> Result<Round, Fault> {
        let missing = || Fault::new("verified", "missing before `committed`".to_owned());
        let open = self.open.remove(request).ok_or_else(missing)?;
        let verdict = open.verdict.ok_or_else(missing)?;
        let Open { base_len, drafts, scored, .. } = open;
        let round = Round { base_len, drafts, scored, verdict, committed, at_us };
        round.check()?;
        Ok(round)
    }
}

fn check_text<'a>(field: &'static str, pieces: impl IntoIterator<Item = &'a Piece>) -> Result<(), Fault> {
    match pieces.into_iter().any(|piece| piece.bytes.len() > MAX_TEXT) {
        true => Err(Fault::new(field, format!("a token of more than {MAX_TEXT} bytes"))),
        false => Ok(()),
    }
}

fn check_row(field: &'static str, row: &Prediction) -> Result<(), Fault> {
    if row.top.len() > MAX_TOP {
        return Err(Fault::new(field, format!("{} candidates; at most {MAX_TOP} are read", row.top.len())));
    }
    check_text(field, row.top.iter().map(|one| &one.piece))
}

/// What serde reports, without a place: every line is line 1 to it.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let end = text.rfind(" at line ").unwrap_or(text.len());
    format!("{} (column {})", &text[..end].chars().take(200).collect::<String>(), error.column())
}

#[cfg(test)]
mod tests;
