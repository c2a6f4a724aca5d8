//! The thread that reads one answer.
//!
//! Invariant: at most [`WAITING`] lines wait for the run; then the reader waits, and the connection fills up. Once the
//! run has let go of the receiver, the next line ends the thread and closes the connection, which stops the server.

use std::io;
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::Instant;

use serde_json::Value;

use crate::http::{Client, HttpError};
use crate::protocol::Lane;

/// Most lines that wait.
pub(super) const WAITING: usize = 4096;

/// A line of an answer, its end, or an error.
pub(super) struct Read {
    pub(super) lane: Lane,
    /// Microseconds since the request.
    pub(super) at_us: u64,
    pub(super) line: Result<Option<String>, HttpError>,
}

/// Posts a request and reads its answer line by line. The last thing sent is no line.
///
/// # Errors
/// When the system cannot start a thread.
pub(super) fn start(
    client: &Client,
    path: &'static str,
    body: Value,
    lane: Lane,
    sender: SyncSender<Read>,
) -> io::Result<()> {
    let client = client.clone();
    thread::Builder::new().name("attach-read".into()).spawn(move || {
        let asked = Instant::now();
        let send = |line| {
            let at_us = u64::try_from(asked.elapsed().as_micros()).unwrap_or(u64::MAX);
            sender.send(Read { lane, at_us, line })
        };
        let mut answer = match client.post_lines(path, &body) {
            Ok(answer) => answer,
            Err(error) => return drop(send(Err(error))),
        };
        loop {
            let line = answer.next_line();
            let is_last = !matches!(line, Ok(Some(_)));
            if send(line).is_err() || is_last {
                return;
            }
        }
    })?;
    Ok(())
}
