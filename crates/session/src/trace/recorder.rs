//! Writes the event stream to a file, on a thread of its own.
//!
//! Invariant: every event except `loading` is written, and no sender waits for the disk: the channel to the writer is
//! unbounded, so a slow disk costs memory and no time. Events are in the file within [`FLUSH`], as complete lines. An
//! error of the disk is reported with the next event. A run that fails before its first event changes nothing: the
//! first event replaces an existing file, and a new file without events is removed.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use draftscope_protocol::stream::Consumer;
use draftscope_protocol::{Event, EventKind};

use super::blank::{Begun, Blank};
use super::digest::Digester;
use super::error::RecordError;

/// Longest time until an event is in the file.
pub const FLUSH: Duration = Duration::from_millis(500);

/// The default level of zstd.
const ZSTD_LEVEL: i32 = 3;

/// How to record the text of prompts and answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TextPolicy {
    /// As text.
    #[default]
    Full,
    /// As digests, with new token ids.
    Digest,
}

/// How to record.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordOptions {
    /// Replace a file that exists.
    pub force: bool,
    /// How to record text.
    pub text: TextPolicy,
}

/// A consumer that appends events to a file, one JSON object per line; the file is compressed with zstd if its name
/// ends in `.zst`.
#[derive(Debug)]
pub struct Recorder {
    events: Option<Sender<Event>>,
    writer: Option<JoinHandle<io::Result<()>>>,
}

impl Recorder {
    /// Creates the file and starts the writer.
    ///
    /// # Errors
    /// [`RecordError`] when the file exists (unless `force` replaces it) or cannot be written.
    pub fn create(path: &Path, options: RecordOptions) -> Result<Self, RecordError> {
        let failed = |source| RecordError::Write { path: path.to_owned(), source };
        let blank = Blank::open(path, options.force)?;
        let digester = (options.text == TextPolicy::Digest).then(Digester::default);
        Self::start(move |events| write(blank, digester, events)).map_err(failed)
    }

    /// Starts the writer.
    fn start(write: impl FnOnce(&Receiver<Event>) -> io::Result<()> + Send + 'static) -> io::Result<Self> {
        let (sender, receiver) = channel();
        let writer = std::thread::Builder::new().name("recorder".into());
        let writer = writer.spawn(move || write(&receiver))?;
        Ok(Self { events: Some(sender), writer: Some(writer) })
    }

    /// Waits until the writer has written everything to the disk.
    fn close(&mut self) -> io::Result<()> {
        self.events = None;
        match self.writer.take() {
            Some(writer) => {
                let ended = writer.join().unwrap_or_else(|_| Err(io::Error::other("the writing thread failed")));
                // not as a broken pipe: that is no error on standard output, but a recording loses events
                ended.map_err(|error| match error.kind() {
                    io::ErrorKind::BrokenPipe => io::Error::other("the reader of its pipe has closed it"),
                    _ => error,
                })
            }
            None => Ok(()),
        }
    }
}

impl Consumer for Recorder {
    fn name(&self) -> &str {
        "the recording"
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        if matches!(event.kind, EventKind::Loading { .. }) {
            return Ok(());
        }
        let is_taken = self.events.as_ref().is_some_and(|events| events.send(event.clone()).is_ok());
        if is_taken { Ok(()) } else { self.close().and(Err(io::Error::other("it was closed"))) }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.close()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.close(); // `finish` reports errors
    }
}

/// The output of the writer.
enum Sink {
    Plain(BufWriter<File>),
    Zstd(zstd::Encoder<'static, BufWriter<File>>),
}

impl Sink {
    fn new(file: File, compressed: bool) -> io::Result<Self> {
        let file = BufWriter::with_capacity(1 << 18, file);
        Ok(if compressed { Self::Zstd(zstd::Encoder::new(file, ZSTD_LEVEL)?) } else { Self::Plain(file) })
    }

    fn end(self) -> io::Result<()> {
        let file = match self {
            Self::Plain(file) => file,
            Self::Zstd(encoder) => encoder.finish()?,
        };
        match file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all() {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()), // a pipe has no disk
            synced => synced,
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.write(bytes),
            Self::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.flush(),
            Self::Zstd(encoder) => encoder.flush(),
        }
    }
}

/// The writer: writes each event as it arrives, and flushes at the latest [`FLUSH`] after the first unflushed one.
fn write(blank: Blank, mut digester: Option<Digester>, events: &Receiver<Event>) -> io::Result<()> {
    // a run whose first event is a failure has not begun
    let first = match events.recv() {
        Ok(Event { kind: EventKind::Failed { .. }, .. }) | Err(_) => return blank.discard(),
        Ok(first) => first,
    };
    let is_packed = blank.is_packed();
    let Begun { file, replaced: _locked } = blank.begin()?;
    let mut sink = Sink::new(file, is_packed)?;
    let mut next = Some(first);
    let mut unflushed: Option<Instant> = None;
    let mut line = Vec::new();
    loop {
        let left = unflushed.map(|since| FLUSH.saturating_sub(since.elapsed()));
        if left == Some(Duration::ZERO) {
            sink.flush()?;
            unflushed = None;
            continue;
        }
        let come = || left.map_or_else(|| events.recv().map_err(Into::into), |left| events.recv_timeout(left));
        match next.take().map_or_else(come, Ok) {
            Ok(event) => {
                let events = match &mut digester {
                    Some(digester) => digester.digest(event),
                    None => [Some(event), None],
                };
                for event in events.into_iter().flatten() {
                    line.clear();
                    serde_json::to_writer(&mut line, &event)?;
                    line.push(b'\n');
                    sink.write_all(&line)?;
                }
                unflushed.get_or_insert_with(Instant::now);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return sink.end(),
        }
    }
}

#[cfg(test)]
mod tests {
    use draftscope_protocol::Lane;

    use super::*;

    #[test]
    fn a_panic_of_the_writer_is_an_error_of_an_event_or_of_the_end() {
        let event = Event { seq: 0, at_us: 0, lane: Lane::Speculative, kind: EventKind::Paused };
        for begins in [true, false] {
            let mut recorder = Recorder::start(move |events| {
                let _ = begins && events.recv().is_ok();
                panic!("a fault")
            })
            .unwrap();
            let all = (0..1_000_000).map(|_| recorder.event(&event)).find(Result::is_err);
            let error = all.unwrap_or_else(|| recorder.finish()).unwrap_err().to_string();
            assert!(error.contains("the writing thread failed"), "{error}");
        }
    }
}
