//! The file of `attach --watch --history`: a line about the watch, then a line for each look, as `replay` reads it.
//!
//! Invariant: a line is written whole or not at all, and a file that ends in the middle of a line loses only that line.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use draftscope::cli::AttachArgs;
use draftscope::export::try_file;
use draftscope::headless::write_json_line;
use draftscope::host::file_access;
use draftscope::protocol::ServerSample;
use serde::{Deserialize, Serialize};

/// Version of the format.
const VERSION: u32 = 1;

/// Samples that wait for a slow screen.
const WAITING: usize = 256;

/// Longest line that is read, in bytes.
const MOST_LINE: u64 = 8 << 20;

/// Most servers and samples that are read.
const MOST_SERVERS: usize = 4096;
const MOST_SAMPLES: usize = 1 << 20;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    /// Version of the format.
    watch: u32,
    /// The program that wrote it.
    program: String,
    /// Number of servers.
    servers: usize,
    /// Seconds between two looks at a server.
    interval_seconds: f64,
    /// When the watch began: milliseconds since 1970.
    started_unix_ms: u64,
}

/// Writes a history.
pub(crate) struct Writer {
    file: File,
    path: PathBuf,
}

impl Writer {
    /// Begins a history, so that a path that cannot be written is reported at once.
    pub(crate) fn create(path: &Path, args: &AttachArgs) -> Result<Self> {
        try_file(path, false)?;
        let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        let head = Head {
            watch: VERSION,
            program: concat!("draftscope ", env!("CARGO_PKG_VERSION")).to_owned(),
            servers: args.urls.len(),
            interval_seconds: args.interval,
            started_unix_ms: u64::try_from(started).unwrap_or(u64::MAX),
        };
        let file = OpenOptions::new().write(true).create_new(true).open(path);
        let mut writer =
            Self { file: file.with_context(|| format!("cannot write {}", path.display()))?, path: path.to_owned() };
        writer.line(&head).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(writer)
    }

    fn line(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut line = Vec::new();
        write_json_line(&mut line, value)?;
        self.file.write_all(&line)
    }

    /// Writes every sample, and hands it on. A history that can no longer be written ends with a sentence; the watch goes
    /// on.
    pub(crate) fn record(mut self, samples: Receiver<ServerSample>) -> Result<Receiver<ServerSample>> {
        let (sender, receiver) = sync_channel(WAITING);
        let path = self.path.display().to_string();
        let mut is_written = true;
        let hand_on = move |sample: ServerSample| {
            if is_written && let Err(error) = self.line(&sample) {
                is_written = false;
                super::output::say(&format!("the history {} ends here: {error}", self.path.display()));
            }
            sender.send(sample).is_ok()
        };
        thread::Builder::new().name("history".into()).spawn(move || {
            if let Some(sentence) = guarded(samples, hand_on, &path) {
                super::output::say(&sentence);
            }
        })?;
        Ok(receiver)
    }
}

/// Hands samples on until nobody takes them; a sentence if that panics.
fn guarded(
    samples: Receiver<ServerSample>,
    mut hand_on: impl FnMut(ServerSample) -> bool,
    path: &str,
) -> Option<String> {
    let all = move || samples.into_iter().all(&mut hand_on);
    let why = "ends here, on an internal error; please report it";
    catch_unwind(AssertUnwindSafe(all)).err().map(|_| format!("the history {path} {why}"))
}

/// A history that was read.
pub(crate) struct History {
    /// Number of servers.
    pub(crate) servers: usize,
    /// The looks, in the order in which they were taken.
    pub(crate) samples: Vec<ServerSample>,
    /// Whether the end of the file is missing, or more was left out.
    pub(crate) is_cut: bool,
}

/// Reads a history; none if the file is something else, such as a recording.
pub(crate) fn read(path: &Path) -> Result<Option<History>> {
    let Ok(file) = file_access::open_regular(path) else { return Ok(None) };
    let mut lines = BufReader::new(file);
    let Some(head) = next(&mut lines)?.and_then(|line| serde_json::from_slice::<Head>(&line).ok()) else {
        return Ok(None);
    };
    if head.watch > VERSION {
        bail!("{} was written by a newer version ({}); update draftscope", path.display(), head.program);
    }
    let (mut samples, mut is_cut) = (Vec::new(), false);
    let servers = head.servers.min(MOST_SERVERS);
    while let Some(line) = next(&mut lines)? {
        match serde_json::from_slice::<ServerSample>(&line) {
            Ok(sample) if samples.len() < MOST_SAMPLES && sample.server < servers => samples.push(sample),
            _ => is_cut = true,
        }
    }
    samples.sort_by_key(|sample| sample.at_ms);
    Ok(Some(History { servers, samples, is_cut }))
}

/// The next line; a line without its end counts, and one that is too long is cut.
fn next(lines: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let read = lines.by_ref().take(MOST_LINE).read_until(b'\n', &mut line)?;
    Ok((read > 0).then_some(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_while_it_is_written_is_a_sentence_and_ends_the_samples() {
        let (sender, samples) = sync_channel(1);
        let (on, received) = sync_channel(1);
        sender.send(ServerSample::default()).unwrap();
        let hand_on = move |sample: ServerSample| -> bool {
            on.send(sample).unwrap();
            panic!("a fault")
        };
        let said = guarded(samples, hand_on, "h.jsonl");
        assert_eq!(said.as_deref(), Some("the history h.jsonl ends here, on an internal error; please report it"));
        assert_eq!(received.into_iter().count(), 1, "then its channel is closed, and nobody waits");
    }

    #[test]
    fn what_is_written_is_read_and_other_files_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("watch.jsonl");
        let head = Head { watch: 1, program: String::new(), servers: 2, interval_seconds: 1.0, started_unix_ms: 0 };
        let mut text = Vec::new();
        write_json_line(&mut text, &head).unwrap();
        for (server, at_ms) in [(0, 2000), (1, 1000), (9, 3000)] {
            write_json_line(&mut text, &ServerSample { server, at_ms, ..ServerSample::default() }).unwrap();
        }
        text.extend(b"{\"server\":0,\"at_m");
        std::fs::write(&path, text).unwrap();
        let history = read(&path).unwrap().unwrap();
        let times: Vec<u64> = history.samples.iter().map(|sample| sample.at_ms).collect();
        assert_eq!((history.servers, times, history.is_cut), (2, vec![1000, 2000], true));
        std::fs::write(&path, "{\"seq\":0,\"type\":\"started\"}\n").unwrap();
        assert!(read(&path).unwrap().is_none());
        assert!(read(&folder.path().join("missing")).unwrap().is_none());
    }
}
