//! Reads a recording line by line, whoever wrote it and however it ended.
//!
//! Invariant: memory is bounded by [`MAX_LINE_BYTES`] whatever the file holds, and nothing in it can
//! make the reader panic. A last line that is not whole ends the reading and is told as a [`Cut`]; a
//! damaged line before it is an error with its number. The raw line stays at hand, so that a rewrite
//! keeps what this program does not know.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use serde::Deserialize;

use crate::protocol::{Event, EventKind, Header, TRACE_VERSION};

use super::error::{Cut, TraceError};

/// Longest line that is read: a prompt of some hundred thousand tokens.
pub const MAX_LINE_BYTES: usize = 16 << 20;

/// First format in which a run that ended says so.
const HAS_END_LINE: u32 = 2;

/// First bytes of a zstd frame.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// What a look at a line without its payload tells.
#[derive(Debug, Deserialize)]
pub(super) struct Glance {
    pub(super) at_us: u64,
    #[serde(rename = "type")]
    pub(super) kind: String,
}

/// A recording being read.
pub struct Reader {
    name: String,
    input: Box<dyn BufRead + Send>,
    line: Vec<u8>,
    number: u64,
    header: Box<Header>,
    /// The header's line is given out again, as the first.
    is_at_header: bool,
    ended: bool,
    cut: Option<Cut>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("name", &self.name).field("line", &self.number).finish_non_exhaustive()
    }
}

impl Reader {
    /// Opens a file, zstd or plain, and reads its header.
    ///
    /// # Errors
    /// When it cannot be read, is no trace or was written in a newer format.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|source| TraceError::Read { name: name.clone(), source })?;
        Self::new(name, BufReader::with_capacity(1 << 18, file))
    }

    /// Reads bytes that are in memory.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn of_bytes(name: &str, bytes: impl AsRef<[u8]> + Send + 'static) -> Result<Self, TraceError> {
        Self::new(name.to_owned(), Cursor::new(bytes))
    }

    fn new(name: String, mut input: impl BufRead + Send + 'static) -> Result<Self, TraceError> {
        let failed = |source| TraceError::Read { name: name.clone(), source };
        let is_zstd = input.fill_buf().map_err(failed)?.starts_with(&ZSTD_MAGIC);
        let input: Box<dyn BufRead + Send> = if is_zstd {
            let decoder = zstd::stream::read::Decoder::with_buffer(input).map_err(failed)?;
            Box::new(BufReader::with_capacity(1 << 18, decoder))
        } else {
            Box::new(input)
        };
        let mut reader = Self {
            header: Box::default(),
            name,
            input,
            line: Vec::new(),
            number: 0,
            is_at_header: true,
            ended: false,
            cut: None,
        };
        reader.header = reader.read_header()?;
        Ok(reader)
    }

    fn read_header(&mut self) -> Result<Box<Header>, TraceError> {
        let no_header = |name: &str, why: &str| TraceError::NoHeader { name: name.to_owned(), why: why.to_owned() };
        if !self.fetch()? {
            return Err(no_header(&self.name, "it holds no whole line"));
        }
        if self.line.is_empty() {
            return Err(no_header(&self.name, "it is empty"));
        }
        self.check_version()?;
        match self.event() {
            Ok(Event { kind: EventKind::Started { header }, .. }) => Ok(header),
            Ok(_) => Err(no_header(&self.name, "its first line is not a header")),
            Err(TraceError::Damaged { why, .. }) => Err(no_header(&self.name, &format!("line 1: {why}"))),
            Err(error) => Err(error),
        }
    }

    /// Before anything else of a header is read: a newer one may look otherwise.
    fn check_version(&self) -> Result<(), TraceError> {
        #[derive(Deserialize)]
        struct Versioned {
            header: Version,
        }
        #[derive(Deserialize)]
        struct Version {
            version: u64,
        }
        match serde_json::from_slice::<Versioned>(&self.line) {
            Ok(v) if v.header.version > TRACE_VERSION.into() => {
                Err(TraceError::Newer { name: self.name.clone(), version: v.header.version })
            }
            _ => Ok(()),
        }
    }

    /// What the run is made of.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Goes to the next line; false at the end.
    ///
    /// # Errors
    /// When the file cannot be read on, or a line is longer than any writer makes it.
    pub fn advance(&mut self) -> Result<bool, TraceError> {
        if std::mem::take(&mut self.is_at_header) {
            return Ok(true);
        }
        let more = self.fetch()?;
        if !more && self.cut.is_none() && !self.ended && self.header.version >= HAS_END_LINE {
            self.cut = Some(Cut::AfterLine(self.number));
        }
        Ok(more)
    }

    /// Reads a line into `line`; false when there is none, or none that is whole.
    fn fetch(&mut self) -> Result<bool, TraceError> {
        if self.cut.is_some() {
            return Ok(false);
        }
        self.line.clear();
        let limit = MAX_LINE_BYTES as u64 + 1;
        let is_torn = match self.input.by_ref().take(limit).read_until(b'\n', &mut self.line) {
            Ok(_) => false,
            // a compressed file that was cut off
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => true,
            Err(source) if self.number == 0 => return Err(TraceError::Read { name: self.name.clone(), source }),
            Err(source) => return Err(self.damaged(self.number + 1, source.to_string())),
        };
        if self.line.is_empty() && !is_torn {
            return Ok(false);
        }
        self.number += 1;
        if self.line.len() > MAX_LINE_BYTES {
            return Err(TraceError::TooLong { name: self.name.clone(), line: self.number });
        }
        let has_end = self.line.last() == Some(&b'\n');
        // the end of an object is its last byte: a line that reads is whole, newline or not
        if !has_end && (is_torn || self.glance().is_err()) {
            self.cut = Some(Cut::InLine(self.number));
            self.number -= 1;
            return Ok(false);
        }
        if has_end {
            self.line.pop();
        }
        Ok(true)
    }

    /// The line as it stands in the file, without its newline.
    #[must_use]
    pub fn raw(&self) -> &[u8] {
        &self.line
    }

    /// The line's number, from 1.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The line as an event.
    ///
    /// # Errors
    /// When it is not one.
    pub fn event(&mut self) -> Result<Event, TraceError> {
        let event: Event =
            serde_json::from_slice(&self.line).map_err(|error| self.damaged(self.number, plain(&error)))?;
        self.ended |= matches!(event.kind, EventKind::Ended { .. });
        Ok(event)
    }

    /// The line without its payload: some five times quicker.
    pub(super) fn glance(&self) -> Result<Glance, TraceError> {
        serde_json::from_slice(&self.line).map_err(|error| self.damaged(self.number, plain(&error)))
    }

    /// Tells that the line at hand ends the run, for those who only glance.
    pub(super) fn saw_end(&mut self) {
        self.ended = true;
    }

    /// Where the recording stops short, once the end is reached; none for one that is whole.
    #[must_use]
    pub fn cut(&self) -> Option<&Cut> {
        self.cut.as_ref()
    }

    fn damaged(&self, line: u64, why: String) -> TraceError {
        TraceError::Damaged { name: self.name.clone(), line, why }
    }
}

/// serde's message without its own line number, which is always 1.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string().replace(" at line 1 column", " at byte");
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).take(200).collect()
}

impl Iterator for Reader {
    type Item = Result<Event, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.advance() {
            Ok(true) => Some(self.event()),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }
}
