//! A recording: its origin, and the figures from reading it once when it is opened.
//!
//! Invariant: opening a recording stores only these figures, so its length does not matter. It checks all lines, so
//! that damage is reported before anything is shown (after the first `CHECKED` lines only the head of each line).

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use draftscope_protocol::{Event, Head, Header, TurnEdge, TurnTimes};

use super::error::{Cut, MAX_LINE_BYTES, TraceError};
use super::parallel_reader::{ParallelReader, Parse};
use super::reader::{Gauge, Reader, ZSTD_MAGIC, event, joined};

/// Lines between two reports of progress.
const WATCHED: u64 = 4096;

/// Lines that are checked completely when a recording is opened: some hours of a run. Damage in the payload of a later
/// line is reported when the replay reaches it, so that a long recording opens quickly.
const CHECKED: u64 = 200_000;

/// Most bytes that are read from a pipe: they are kept in memory, since a recording is read more than once.
const PIPED: u64 = 1 << 30;

/// More bytes than the longest line takes compressed.
const MAX_PACKED_LINE: u64 = MAX_LINE_BYTES as u64 + (1 << 20);

/// More than the bytes before the payload of a line.
const HEAD_BYTES: usize = 128;

/// Where a recording comes from.
#[derive(Clone, Debug)]
enum Origin {
    File(PathBuf),
    Memory { name: Arc<str>, bytes: Arc<[u8]> },
}

impl Origin {
    /// The origin that a path names: a file, or a pipe (`-` is standard input), which is read to its end.
    fn at(path: &Path) -> Result<Self, TraceError> {
        let failed = |source| TraceError::Read { name: path.display().to_string(), source };
        let bytes = if path == Path::new("-") {
            piped(std::io::stdin().lock())
        } else if std::fs::metadata(path).is_ok_and(|known| !known.is_file() && !known.is_dir()) {
            draftscope_host::file_access::open(path).and_then(piped)
        } else {
            return Ok(Self::File(path.to_owned()));
        };
        let bytes = bytes.map_err(failed)?;
        if bytes.len() as u64 > PIPED {
            let text = format!("the pipe sent more than {} MiB; write the recording to a file first", PIPED >> 20);
            return Err(failed(std::io::Error::other(text)));
        }
        Ok(Self::Memory { name: path.to_string_lossy().into(), bytes: bytes.into() })
    }
}

/// All that comes through a pipe, or its beginning if that is not the header of a recording: the reader then says what is
/// wrong with it.
fn piped(pipe: impl Read) -> io::Result<Vec<u8>> {
    let mut pipe = BufReader::new(pipe);
    let mut bytes = Vec::new();
    pipe.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut bytes)?;
    let is_zstd = bytes.starts_with(&ZSTD_MAGIC);
    let starts_a_line = |byte: &u8| byte.is_ascii_whitespace() || b"{\xef\xbb\xbf".contains(byte);
    if is_zstd {
        pipe.by_ref().take(MAX_PACKED_LINE).read_to_end(&mut bytes)?;
    } else if !bytes.first().is_some_and(starts_a_line) {
        return Ok(bytes);
    } else if !bytes.contains(&b'\n') {
        pipe.by_ref().take(MAX_LINE_BYTES as u64).read_until(b'\n', &mut bytes)?;
    }
    let may_be_header = is_zstd || bytes.len() <= MAX_LINE_BYTES;
    if may_be_header && Reader::of_bytes("", bytes.clone()).is_ok() {
        pipe.take(PIPED + 1 - bytes.len() as u64).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// A recording, which can be read from its start several times.
#[derive(Clone, Debug)]
pub struct Recording {
    origin: Origin,
    header: Header,
    lines: u64,
    ends_at_us: u64,
    turns: TurnTimes,
    cut: Option<Cut>,
    /// Set to end reading.
    stop: Arc<AtomicBool>,
}

impl Recording {
    /// Opens a file and reads it once.
    ///
    /// # Errors
    /// When it cannot be read, is not a trace, is damaged or has a newer format.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        Self::of(Origin::at(path)?, |_| ())
    }

    /// Opens a file as [`Recording::open`], and calls `watch` with the share that has been read, 0 to 1.
    ///
    /// # Errors
    /// As [`Recording::open`].
    pub fn open_watched(path: &Path, watch: impl FnMut(f64)) -> Result<Self, TraceError> {
        Self::of(Origin::at(path)?, watch)
    }

    /// Opens a recording in memory.
    ///
    /// # Errors
    /// As [`Recording::open`].
    pub fn of_bytes(name: &str, bytes: impl Into<Arc<[u8]>>) -> Result<Self, TraceError> {
        Self::of(Origin::Memory { name: name.into(), bytes: bytes.into() }, |_| ())
    }

    fn of(origin: Origin, mut watch: impl FnMut(f64)) -> Result<Self, TraceError> {
        let reader = origin.reader()?;
        let mut recording = Self {
            header: reader.header().clone(),
            origin,
            lines: 0,
            ends_at_us: 0,
            turns: TurnTimes::default(),
            cut: None,
            stop: Arc::default(),
        };
        let gauge = reader.gauge();
        let mut times = read_ahead(reader, when)?;
        for line in times.by_ref() {
            let (at_us, edge) = line?;
            recording.ends_at_us = recording.ends_at_us.max(at_us);
            if let Some(edge) = edge {
                recording.turns.add(edge, at_us);
            }
            recording.lines += 1;
            if recording.lines.is_multiple_of(WATCHED) {
                watch(gauge.share());
            }
        }
        recording.cut = times.cut().cloned();
        Ok(recording)
    }

    /// All events from its start, parsed ahead on other threads.
    ///
    /// # Errors
    /// When it cannot be opened any more.
    pub fn events(&self) -> Result<Events, TraceError> {
        Ok(Events { stop: Arc::clone(&self.stop), ..Events::of(self.reader()?)? })
    }

    /// The same recording, whose reading ends with [`TraceError::Stopped`] once the flag is set.
    #[must_use]
    pub fn stopped_by(self, stop: Arc<AtomicBool>) -> Self {
        Self { stop, ..self }
    }

    /// Checks that reading was not stopped, for callers that read line by line.
    ///
    /// # Errors
    /// [`TraceError::Stopped`] when the flag of [`Recording::stopped_by`] is set.
    pub fn check_stop(&self) -> Result<(), TraceError> {
        check_stop(&self.stop)
    }

    /// Reads it from its start, line by line.
    ///
    /// # Errors
    /// When it cannot be opened any more.
    pub fn reader(&self) -> Result<Reader, TraceError> {
        self.origin.reader()
    }

    /// The recorded header of the run.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Number of complete lines, the header included.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// The last event's `at_us`, in microseconds.
    #[must_use]
    pub fn ends_at_us(&self) -> u64 {
        self.ends_at_us
    }

    /// When its turns begin and end.
    #[must_use]
    pub fn turns(&self) -> &TurnTimes {
        &self.turns
    }

    /// Where it was cut off; none if it is complete.
    #[must_use]
    pub fn cut(&self) -> Option<&Cut> {
        self.cut.as_ref()
    }

    /// Its name: the path, or the name in memory.
    #[must_use]
    pub fn name(&self) -> String {
        self.origin.name()
    }
}

/// The time of a line, in microseconds, and what it says of its turn. The first `CHECKED` lines are parsed completely.
/// Of later lines only the head is read, if its keys have the order in which this program writes them.
fn when(name: &str, number: u64, line: &[u8]) -> Result<(u64, Option<TurnEdge>), TraceError> {
    let start = &line[..line.len().min(HEAD_BYTES)];
    let start = String::from_utf8_lossy(start); // a character may be cut
    match Head::quick(&start).filter(|_| number > CHECKED && line.ends_with(b"}")) {
        Some(head) if head.kind == "started" => Err(joined(name, number)),
        Some(head) => Ok((head.at_us, TurnEdge::of_name(&head.kind))),
        None => event(name, number, line).map(|event| (event.at_us, event.kind.turn_edge())),
    }
}

/// The events of a recording, in order.
#[derive(Debug)]
pub struct Events {
    events: ParallelReader<Event>,
    gauge: Gauge,
    stop: Arc<AtomicBool>,
}

fn check_stop(stop: &AtomicBool) -> Result<(), TraceError> {
    if stop.load(Ordering::Relaxed) { Err(TraceError::Stopped) } else { Ok(()) }
}

fn read_ahead<T: Send + 'static>(reader: Reader, parse: Parse<T>) -> Result<ParallelReader<T>, TraceError> {
    let name = reader.name().to_owned();
    ParallelReader::new(reader, parse).map_err(|source| TraceError::Read { name, source })
}

impl Events {
    /// Opens a file, zstd or plain, or a pipe (`-` is standard input), and begins to read it.
    ///
    /// # Errors
    /// When it cannot be read, is not a trace or has a newer format.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        Self::of(Origin::at(path)?.reader()?)
    }

    fn of(reader: Reader) -> Result<Self, TraceError> {
        Ok(Self { gauge: reader.gauge(), events: read_ahead(reader, event)?, stop: Arc::default() })
    }

    /// Where the recording was cut off, once the end is reached; none if it is complete.
    #[must_use]
    pub fn cut(&self) -> Option<&Cut> {
        self.events.cut()
    }

    /// The share of the file that has been read, 0 to 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.gauge.share()
    }
}

impl Iterator for Events {
    type Item = Result<Event, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.events.next()?;
        Some(check_stop(&self.stop).and(next))
    }
}

impl Origin {
    fn reader(&self) -> Result<Reader, TraceError> {
        match self {
            Self::File(path) => Reader::open(path),
            Self::Memory { name, bytes } => Reader::of_bytes(name, Arc::clone(bytes)),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Memory { name, .. } => name.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_recording_is_not_read_to_its_end() {
        for endless in [0, b'x', 0xff, b'\n'] {
            assert_eq!(piped(io::repeat(endless)).unwrap().len(), HEAD_BYTES);
        }
        for endless in [b'{', b' '] {
            assert_eq!(piped(io::repeat(endless)).unwrap().len(), HEAD_BYTES + MAX_LINE_BYTES);
        }
        let line = zstd::encode_all(&b"{\"a\":1}\n"[..], 1).unwrap();
        for packed in [&ZSTD_MAGIC[..], &line] {
            let endless = piped(packed.chain(io::repeat(7))).unwrap();
            assert!(endless.len() as u64 <= HEAD_BYTES as u64 + MAX_PACKED_LINE, "{}", endless.len());
        }
        let not_a_header = b"{\"seq\":0,\"at_us\":0,\"type\":\"paused\"}\n".repeat(1 << 16);
        for lines in [&b"{\n".repeat(1 << 16)[..], &not_a_header] {
            assert!(piped(lines).unwrap().len() <= HEAD_BYTES);
        }
        #[cfg(unix)]
        assert!(Recording::open(Path::new("/dev/zero")).is_err());
        let mut packed = ZSTD_MAGIC.to_vec();
        packed.resize(3 * HEAD_BYTES, 7);
        for whole in [&packed[..], &b"{".repeat(1000), b"\n{}", b"\xef\xbb\xbf{}", b""] {
            assert_eq!(piped(whole).unwrap(), whole);
        }
    }
}
