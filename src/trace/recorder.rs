//! Writes the event stream to a file.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::protocol::{Event, EventKind};
use crate::stream::Consumer;

/// A recording that cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// There is a file of this name.
    #[error("{} exists already; choose another name or add --force to replace it", .0.display())]
    Exists(PathBuf),
    /// The file cannot be made.
    #[error("cannot write the trace {}: {source}", path.display())]
    Write {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A consumer that appends every event but `loading` to a file, one JSON object a line.
pub struct Recorder {
    file: BufWriter<File>,
}

impl Recorder {
    /// Makes the file. An existing one is replaced only by `force`.
    ///
    /// # Errors
    /// [`RecordError`] when it exists or cannot be written.
    pub fn create(path: &Path, force: bool) -> Result<Self, RecordError> {
        let mut options = OpenOptions::new();
        options.write(true);
        if force {
            options.create(true).truncate(true)
        } else {
            options.create_new(true)
        };
        match options.open(path) {
            Ok(file) => Ok(Self { file: BufWriter::new(file) }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(RecordError::Exists(path.to_owned())),
            Err(source) => Err(RecordError::Write { path: path.to_owned(), source }),
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
        serde_json::to_writer(&mut self.file, event)?;
        self.file.write_all(b"\n")?;
        // the ends of what a reader can use: rounds, turns, the run
        let is_end = matches!(
            event.kind,
            EventKind::Started { .. }
                | EventKind::Prefilled { .. }
                | EventKind::Committed { .. }
                | EventKind::Finished { .. }
                | EventKind::Failed { .. }
        );
        if is_end { self.file.flush() } else { Ok(()) }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Lane, StopReason};

    fn event(seq: u64, kind: EventKind) -> Event {
        Event { seq, at_us: seq, lane: Lane::Plain, kind }
    }

    #[test]
    fn a_recording_reads_back_and_is_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.dscope.jsonl");
        let events = [
            event(0, EventKind::Loading { stage: "target".into(), done: 0, total: 1 }),
            event(1, EventKind::Prompted { turn: 1, text: "hi\u{1b}[31m\n".into(), branch: None }),
            event(2, EventKind::Finished { reason: StopReason::Eos }),
        ];
        let mut recorder = Recorder::create(&path, false).unwrap();
        events.iter().for_each(|e| recorder.event(e).unwrap());
        let text = std::fs::read_to_string(&path).unwrap(); // before finish: the end of a turn is flushed
        let read: Vec<Event> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(read, events[1..]);
        assert!(!text.contains('\u{1b}'));
        let refused = Recorder::create(&path, false).err().unwrap().to_string();
        assert!(refused.contains("--force"), "{refused}");
        drop(Recorder::create(&path, true).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"");
        assert!(matches!(Recorder::create(&folder.path().join("no/such"), false), Err(RecordError::Write { .. })));
    }
}
