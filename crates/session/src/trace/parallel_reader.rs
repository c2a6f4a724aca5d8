//! Reads a recording ahead of its use: one thread reads lines, others parse them, and they are returned in order.
//!
//! Invariant: the result equals that of [`Reader`] line by line, with errors and cut at the same places. Memory is
//! bounded by a few batches per thread. Dropping the iterator ends the threads.

use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::error::{Cut, TraceError};
use super::reader::Reader;

/// Bytes of a batch: large enough that passing it between threads costs little, small enough to stay in a cache.
const BATCH_BYTES: usize = 1 << 18;

/// Most batches that wait before and after each thread.
const WAITING: usize = 2;

/// Most lines of a batch.
const BATCH_LINES: usize = 4096;

/// Most threads that parse.
const MAX_WORKERS: usize = 4;

/// Parses a line, given the recording's name and the line's number.
pub(super) type Parse<T> = fn(&str, u64, &[u8]) -> Result<T, TraceError>;

/// How the lines end: complete, cut off, or with an error.
type Ending = Result<Option<Cut>, TraceError>;

/// Unparsed lines of the file.
struct Batch {
    /// Number of the first line.
    first: u64,
    text: Vec<u8>,
    /// The offset after each line in `text`.
    ends: Vec<usize>,
    ending: Option<Ending>,
}

struct Parsed<T> {
    lines: Vec<Result<T, TraceError>>,
    ending: Option<Ending>,
}

/// The parsed lines of a recording in order, read ahead of their use.
#[derive(Debug)]
pub(super) struct ParallelReader<T> {
    name: Arc<str>,
    /// Batches come from these in turn.
    parsed: Vec<Receiver<Parsed<T>>>,
    turn: usize,
    lines: std::vec::IntoIter<Result<T, TraceError>>,
    ending: Option<Ending>,
    cut: Option<Cut>,
}

impl<T: Send + 'static> ParallelReader<T> {
    /// Starts to read; `parse` converts each line.
    pub(super) fn new(reader: Reader, parse: Parse<T>) -> io::Result<Self> {
        let name: Arc<str> = reader.name().into();
        let workers = thread::available_parallelism().map_or(1, NonZero::get).min(MAX_WORKERS);
        let (mut inputs, mut parsed) = (Vec::new(), Vec::new());
        for _ in 0..workers {
            let (input, batches) = sync_channel(WAITING);
            let (done, output) = sync_channel(WAITING);
            let name = Arc::clone(&name);
            let worker = thread::Builder::new().name("trace-parse".into());
            worker.spawn(move || parse_all(&name, &batches, &done, parse))?;
            inputs.push(input);
            parsed.push(output);
        }
        thread::Builder::new().name("trace-read".into()).spawn(move || read_all(reader, &inputs))?;
        Ok(Self { name, parsed, turn: 0, lines: Vec::new().into_iter(), ending: None, cut: None })
    }
}

impl<T> ParallelReader<T> {
    /// Where the recording was cut off, once the end is reached; none if it is complete.
    pub(super) fn cut(&self) -> Option<&Cut> {
        self.cut.as_ref()
    }
}

impl<T> Iterator for ParallelReader<T> {
    type Item = Result<T, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(line) = self.lines.next() {
                return Some(line);
            }
            match self.ending.take() {
                Some(Err(error)) => {
                    self.parsed.clear();
                    return Some(Err(error));
                }
                Some(Ok(cut)) => {
                    self.parsed.clear();
                    self.cut = cut;
                }
                None => {}
            }
            let Ok(next) = self.parsed.get(self.turn)?.recv() else {
                self.parsed.clear();
                let source = io::Error::other("a reading thread failed");
                return Some(Err(TraceError::Read { name: self.name.to_string(), source }));
            };
            self.turn = (self.turn + 1) % self.parsed.len();
            self.lines = next.lines.into_iter();
            self.ending = next.ending;
        }
    }
}

fn read_all(mut reader: Reader, workers: &[SyncSender<Batch>]) {
    for worker in workers.iter().cycle() {
        let batch = read(&mut reader);
        let is_last = batch.ending.is_some();
        if worker.send(batch).is_err() || is_last {
            return;
        }
    }
}

fn read(reader: &mut Reader) -> Batch {
    let mut batch = Batch { first: reader.number() + 1, text: Vec::new(), ends: Vec::new(), ending: None };
    while batch.text.len() < BATCH_BYTES && batch.ends.len() < BATCH_LINES {
        match reader.advance() {
            Ok(true) => {
                if batch.ends.is_empty() {
                    batch.first = reader.number();
                }
                batch.text.extend_from_slice(reader.raw());
                batch.ends.push(batch.text.len());
            }
            Ok(false) => {
                batch.ending = Some(Ok(reader.cut().cloned()));
                break;
            }
            Err(error) => {
                batch.ending = Some(Err(error));
                break;
            }
        }
    }
    batch
}

fn parse_all<T>(name: &str, batches: &Receiver<Batch>, done: &SyncSender<Parsed<T>>, parse: Parse<T>) {
    while let Ok(batch) = batches.recv() {
        let mut from = 0;
        let mut lines = Vec::with_capacity(batch.ends.len());
        for (end, number) in batch.ends.iter().zip(batch.first..) {
            lines.push(parse(name, number, &batch.text[from..*end]));
            from = *end;
            if lines.last().is_some_and(Result::is_err) {
                break; // reading ends at the first error
            }
        }
        let parsed = Parsed { lines, ending: batch.ending };
        if done.send(parsed).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::reader::event;
    use super::*;
    use crate::fixture::conversation;
    use draftscope_protocol::Event;

    /// A trace of many batches.
    fn long() -> Vec<u8> {
        let events = conversation().events;
        let mut text = Vec::new();
        let rest = events[1..].iter().cycle().take(6 * BATCH_BYTES / 100);
        for event in events[..1].iter().chain(rest) {
            serde_json::to_writer(&mut text, event).unwrap();
            text.push(b'\n');
        }
        assert!(text.len() > 5 * BATCH_BYTES);
        text
    }

    /// The results of both readers, as text.
    fn both(bytes: &[u8]) -> [(Vec<String>, Option<Cut>); 2] {
        let text = |item: Result<Event, TraceError>| item.map_or_else(|e| e.to_string(), |e| format!("{e:?}"));
        let open = || Reader::of_bytes("t", bytes.to_vec()).unwrap();
        let mut reader = open();
        let mut by_line = Vec::new();
        for item in reader.by_ref() {
            let is_last = item.is_err();
            by_line.push(text(item));
            if is_last {
                break;
            }
        }
        let cut = reader.cut().cloned();
        let mut ahead = ParallelReader::new(open(), event).unwrap();
        let mut early = Vec::new();
        for item in ahead.by_ref() {
            let is_last = item.is_err();
            early.push(text(item));
            if is_last {
                break;
            }
        }
        [(by_line, cut), (early, ahead.cut().cloned())]
    }

    #[test]
    fn reading_ahead_equals_reading_line_by_line() {
        let whole = long();
        let [by_line, ahead] = both(&whole);
        assert!(by_line == ahead && ahead.1.is_some(), "{:?} {:?}", by_line.1, ahead.1);
        for len in [whole.len() - 3, whole.len() / 2, BATCH_BYTES + 7] {
            let [by_line, ahead] = both(&whole[..len]);
            assert!(by_line == ahead && matches!(ahead.1, Some(Cut::InLine(_))), "cut at {len}");
        }
        let mut damaged = whole;
        let middle = damaged.len() / 2;
        let at = middle + damaged[middle..].iter().position(|b| *b == b'\n').unwrap() + 1;
        damaged[at] = b'x';
        let [by_line, ahead] = both(&damaged);
        assert!(by_line == ahead, "{:?}", ahead.0.last());
        assert!(ahead.0.last().unwrap().contains("is damaged at line"));
    }

    #[test]
    fn the_first_empty_line_is_an_error() {
        let mut bytes = long();
        bytes.truncate(bytes.iter().position(|b| *b == b'\n').unwrap() + 1);
        bytes.extend(std::iter::repeat_n(b'\n', 3 * BATCH_LINES));
        let [by_line, ahead] = both(&bytes);
        assert!(by_line == ahead && ahead.0.len() == 2, "{:?}", ahead.0.last());
        let batch = read(&mut Reader::of_bytes("t", bytes).unwrap());
        assert!(batch.ends.len() <= BATCH_LINES);
    }

    #[test]
    fn a_thread_that_panics_is_an_error_after_which_nothing_comes() {
        let fails: Parse<Event> = |_, _, _| panic!("a fault");
        let mut ahead = ParallelReader::new(Reader::of_bytes("t", long()).unwrap(), fails).unwrap();
        let why = ahead.next().unwrap().unwrap_err().to_string();
        assert!(why.contains("a reading thread failed"), "{why}");
        assert!(ahead.next().is_none());
    }

    #[test]
    fn dropping_the_reader_ends_its_threads() {
        let mut ahead = ParallelReader::new(Reader::of_bytes("t", long()).unwrap(), event).unwrap();
        assert!(ahead.by_ref().take(3).all(|line| line.is_ok()));
        drop(ahead); // hangs here if a thread does not end
    }
}
