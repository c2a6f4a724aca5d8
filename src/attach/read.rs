//! The thread that reads one answer.
//!
//! Invariant: at most [`WAITING`] lines wait for the run; then the reader waits, and the connection fills up. Once the
//! run has let go of the receiver, the next line ends the thread and closes the connection, which stops the server.

use std::io;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use serde_json::Value;

use crate::http::{Client, HttpError};

/// Most lines that wait.
const WAITING: usize = 4096;

/// A line of the answer, its end, or an error.
pub(super) type Read = Result<Option<String>, HttpError>;

/// Posts a request and reads its answer line by line.
///
/// # Errors
/// When the system cannot start a thread.
pub(super) fn start(client: &Client, path: &'static str, body: Value) -> io::Result<Receiver<Read>> {
    let (sender, lines) = sync_channel(WAITING);
    let client = client.clone();
    thread::Builder::new().name("attach-read".into()).spawn(move || {
        let mut answer = match client.post_lines(path, &body) {
            Ok(answer) => answer,
            Err(error) => return drop(sender.send(Err(error))),
        };
        loop {
            let line = answer.next_line();
            let is_last = !matches!(line, Ok(Some(_)));
            if sender.send(line).is_err() || is_last {
                return;
            }
        }
    })?;
    Ok(lines)
}
