//! A recording as a whole: where it lies, and what a look over all of its lines tells.
//!
//! Invariant: looking over a recording keeps nothing of it but these numbers, so that its length is
//! no matter; its lines are checked there, so that a damaged one is told before anything is shown
//! (beyond the first `CHECKED` lines only the head of each).

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::protocol::{Event, Head, Header};

use super::error::{Cut, TraceError};
use super::parallel_reader::{ParallelReader, Parse};
use super::reader::{Gauge, Reader, event};

/// Lines between two words about how far the reading is.
const WATCHED: u64 = 4096;

/// Lines that are checked to the last byte before anything is shown: some hours of writing. Damage in
/// the payload of a later one is told when it is reached, so that a long recording opens at once.
const CHECKED: u64 = 200_000;

/// Most that is taken from a pipe, in bytes: it is kept, since a recording is read more than once.
const PIPED: u64 = 1 << 30;

/// More than what stands before the payload of a line.
const HEAD_BYTES: usize = 128;

/// Where a recording lies.
#[derive(Clone, Debug)]
enum Origin {
    File(PathBuf),
    Memory { name: Arc<str>, bytes: Arc<[u8]> },
}

impl Origin {
    /// What a path names: a file, or a pipe (`-` is standard input), which is read to its end.
    fn at(path: &Path) -> Result<Self, TraceError> {
        let failed = |source| TraceError::Read { name: path.display().to_string(), source };
        let mut bytes = Vec::new();
        if path == Path::new("-") {
            std::io::stdin().lock().take(PIPED + 1).read_to_end(&mut bytes).map_err(failed)?;
        } else if std::fs::metadata(path).is_ok_and(|known| !known.is_file() && !known.is_dir()) {
            File::open(path).and_then(|pipe| pipe.take(PIPED + 1).read_to_end(&mut bytes)).map_err(failed)?;
        } else {
            return Ok(Self::File(path.to_owned()));
        }
        if bytes.len() as u64 > PIPED {
            let text = format!("more than {} MiB came through a pipe; write it to a file first", PIPED >> 20);
            return Err(failed(std::io::Error::other(text)));
        }
        Ok(Self::Memory { name: path.to_string_lossy().into(), bytes: bytes.into() })
    }
}

/// A recording that can be read from its start, again and again.
#[derive(Clone, Debug)]
pub struct Recording {
    origin: Origin,
    header: Header,
    lines: u64,
    ends_at_us: u64,
    cut: Option<Cut>,
    /// Whether reading is to end.
    stop: Arc<AtomicBool>,
}

impl Recording {
    /// Looks a file over.
    ///
    /// # Errors
    /// When it cannot be read, is no trace, is damaged or was written in a newer format.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        Self::of(Origin::at(path)?, |_| ())
    }

    /// The same, telling now and then which share of the file has been read, 0 to 1.
    ///
    /// # Errors
    /// As [`Recording::open`].
    pub fn open_watched(path: &Path, watch: impl FnMut(f64)) -> Result<Self, TraceError> {
        Self::of(Origin::at(path)?, watch)
    }

    /// Looks over a recording that is in memory.
    ///
    /// # Errors
    /// As [`Recording::open`].
    pub fn of_bytes(name: &str, bytes: impl Into<Arc<[u8]>>) -> Result<Self, TraceError> {
        Self::of(Origin::Memory { name: name.into(), bytes: bytes.into() }, |_| ())
    }

    fn of(origin: Origin, mut watch: impl FnMut(f64)) -> Result<Self, TraceError> {
        let reader = origin.reader()?;
        let mut recording =
            Self { header: reader.header().clone(), origin, lines: 0, ends_at_us: 0, cut: None, stop: Arc::default() };
        let gauge = reader.gauge();
        let mut times = ahead(reader, when)?;
        for at_us in times.by_ref() {
            recording.ends_at_us = recording.ends_at_us.max(at_us?);
            recording.lines += 1;
            if recording.lines.is_multiple_of(WATCHED) {
                watch(gauge.share());
            }
        }
        recording.cut = times.cut().cloned();
        Ok(recording)
    }

    /// Everything in it, from its start, parsed ahead on other threads.
    ///
    /// # Errors
    /// When it is not there any more.
    pub fn events(&self) -> Result<Events, TraceError> {
        Ok(Events { stop: Arc::clone(&self.stop), ..Events::of(self.reader()?)? })
    }

    /// The same recording, whose reading ends with [`TraceError::Stopped`] once the flag is set.
    #[must_use]
    pub fn stopped_by(self, stop: Arc<AtomicBool>) -> Self {
        Self { stop, ..self }
    }

    /// For whoever reads line by line: whether to go on.
    ///
    /// # Errors
    /// [`TraceError::Stopped`].
    pub fn go_on(&self) -> Result<(), TraceError> {
        go_on(&self.stop)
    }

    /// Reads it from its start, line by line.
    ///
    /// # Errors
    /// When it is not there any more.
    pub fn reader(&self) -> Result<Reader, TraceError> {
        self.origin.reader()
    }

    /// What the run is made of, as recorded.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Whole lines, the header's included.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// The last event's `at_us`.
    #[must_use]
    pub fn ends_at_us(&self) -> u64 {
        self.ends_at_us
    }

    /// Where it stops short; none for one that is whole.
    #[must_use]
    pub fn cut(&self) -> Option<&Cut> {
        self.cut.as_ref()
    }

    /// What to call it: its path, or its name.
    #[must_use]
    pub fn name(&self) -> String {
        self.origin.name()
    }
}

/// When a line happened. Of the first lines all is checked, of later ones what stands before the
/// payload, where it stands as this program writes it.
fn when(name: &str, number: u64, line: &[u8]) -> Result<u64, TraceError> {
    let start = &line[..line.len().min(HEAD_BYTES)];
    let start = String::from_utf8_lossy(start); // a character may be cut
    match Head::quick(&start).filter(|_| number > CHECKED && line.ends_with(b"}")) {
        Some(head) => Ok(head.at_us),
        None => Ok(event(name, number, line)?.at_us),
    }
}

/// Everything in a recording, in order.
#[derive(Debug)]
pub struct Events {
    events: ParallelReader<Event>,
    gauge: Gauge,
    stop: Arc<AtomicBool>,
}

fn go_on(stop: &AtomicBool) -> Result<(), TraceError> {
    if stop.load(Ordering::Relaxed) { Err(TraceError::Stopped) } else { Ok(()) }
}

fn ahead<T: Send + 'static>(reader: Reader, parse: Parse<T>) -> Result<ParallelReader<T>, TraceError> {
    let name = reader.name().to_owned();
    ParallelReader::new(reader, parse).map_err(|source| TraceError::Read { name, source })
}

impl Events {
    /// Opens a file, zstd or plain, or what a pipe brings (`-` is standard input), and begins to read it.
    ///
    /// # Errors
    /// When it cannot be read, is no trace or was written in a newer format.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        Self::of(Origin::at(path)?.reader()?)
    }

    fn of(reader: Reader) -> Result<Self, TraceError> {
        Ok(Self { gauge: reader.gauge(), events: ahead(reader, event)?, stop: Arc::default() })
    }

    /// Where the recording stops short, once the end is reached; none for one that is whole.
    #[must_use]
    pub fn cut(&self) -> Option<&Cut> {
        self.events.cut()
    }

    /// Which share of the file has been read, 0 to 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.gauge.share()
    }
}

impl Iterator for Events {
    type Item = Result<Event, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.events.next()?;
        Some(go_on(&self.stop).and(next))
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
