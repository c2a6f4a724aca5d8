//! Reads a recording line by line, also a damaged or incomplete one.
//!
//! Invariant: memory is bounded by [`MAX_LINE_BYTES`] for every file content, and no content makes the reader panic. An
//! incomplete last line ends the reading and is reported as a [`Cut`]; a damaged line before it is an error with the
//! line's number. The raw line is available, so that a rewrite keeps events that this version does not know.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Deserialize;

use draftscope_host::file_access;
use draftscope_protocol::{Event, EventKind, Head, Header, TRACE_VERSION};

use super::error::{Cut, MAX_LINE_BYTES, TraceError};

/// First format version in which a run that ended normally has an `ended` line.
const HAS_END_LINE: u32 = 2;

/// First bytes of a zstd frame.
pub(super) const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// How much of a file has been read.
#[derive(Clone, Debug, Default)]
pub(super) struct Gauge {
    read: Arc<AtomicU64>,
    bytes: u64,
}

impl Gauge {
    /// The share that has been read, 0 to 1; 1 if the size is not known.
    pub(super) fn share(&self) -> f64 {
        if self.bytes == 0 { 1.0 } else { (self.read.load(Ordering::Relaxed) as f64 / self.bytes as f64).min(1.0) }
    }
}

/// A file whose bytes are counted as they are read.
struct Counted {
    file: File,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = self.file.read(into)?;
        self.read.fetch_add(len as u64, Ordering::Relaxed);
        Ok(len)
    }
}

/// A recording being read.
pub struct Reader {
    name: String,
    gauge: Gauge,
    input: Box<dyn BufRead + Send>,
    line: Vec<u8>,
    number: u64,
    header: Box<Header>,
    /// The header's line was read for the header and will be returned as the first line.
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
    /// When it cannot be read, is not a trace or has a newer format.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let name = path.display().to_string();
        let file = file_access::open_regular(path).map_err(|source| TraceError::Read { name: name.clone(), source })?;
        let gauge = Gauge { bytes: file.metadata().map_or(0, |known| known.len()), ..Gauge::default() };
        let counted = Counted { file, read: Arc::clone(&gauge.read) };
        let mut reader = Self::new(name, BufReader::with_capacity(1 << 18, counted))?;
        reader.gauge = gauge;
        Ok(reader)
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
        let mut input = input;
        if let Some(what) = file_access::other_encoding(input.fill_buf().unwrap_or_default()) {
            return Err(failed(io::Error::other(what)));
        }
        let mut reader = Self {
            header: Box::default(),
            name,
            gauge: Gauge::default(),
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
            return Err(no_header(&self.name, "it contains no complete line"));
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

    /// Checks the version before the other fields of the header are read, since a newer header may differ.
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

    /// The header of the run.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Goes to the next line; false at the end.
    ///
    /// # Errors
    /// When the file cannot be read, or a line is longer than [`MAX_LINE_BYTES`].
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

    /// Reads the next line into `line`; false if there is none, or only an incomplete one.
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
        // a JSON object ends with its last byte, so a line that can be parsed is complete even without a newline
        if !has_end && (is_torn || Event::of_line(file_access::without_mark(&self.line)).is_err()) {
            self.cut = Some(Cut::InLine(self.number));
            self.number -= 1;
            return Ok(false);
        }
        if has_end {
            self.line.pop();
            self.line.pop_if(|last| *last == b'\r');
        }
        let mark = self.line.len() - file_access::without_mark(&self.line).len();
        self.line.drain(..mark);
        self.ended |= is_end(&self.line);
        Ok(true)
    }

    /// The bytes of the line, without its newline.
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
    /// When it is not an event.
    pub fn event(&self) -> Result<Event, TraceError> {
        event(&self.name, self.number, &self.line)
    }

    /// Where the recording was cut off, once the end is reached; none if it is complete.
    #[must_use]
    pub fn cut(&self) -> Option<&Cut> {
        self.cut.as_ref()
    }

    /// How much of the file has been read.
    pub(super) fn gauge(&self) -> Gauge {
        self.gauge.clone()
    }

    /// Name of the recording in messages.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn damaged(&self, line: u64, why: String) -> TraceError {
        TraceError::Damaged { name: self.name.clone(), line, why }
    }
}

/// A line as an event.
pub(super) fn event(name: &str, number: u64, line: &[u8]) -> Result<Event, TraceError> {
    let damaged = |error| TraceError::Damaged { name: name.to_owned(), line: number, why: plain(&error) };
    match Event::of_line(line).map_err(damaged)? {
        Event { kind: EventKind::Started { .. }, .. } if number > 1 => Err(joined(name, number)),
        event => Ok(event),
    }
}

/// The error for a line at which a second recording starts.
pub(super) fn joined(name: &str, line: u64) -> TraceError {
    TraceError::Joined { name: name.to_owned(), line }
}

/// Whether a line ends the run.
fn is_end(line: &[u8]) -> bool {
    // far more than the bytes before the kind
    let start = String::from_utf8_lossy(&line[..line.len().min(200)]);
    match Head::quick(&start) {
        Some(head) => head.kind == "ended",
        None => std::str::from_utf8(line).is_ok_and(|line| Head::of(line).is_ok_and(|head| head.kind == "ended")),
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
