//! The thread that reads one answer.
//!
//! Invariant: at most [`WAITING`] lines of [`MAX_BYTES`] in all wait for the run; then the reader waits, and the connection
//! fills up. Once the run has let go of the receiver, the next line ends the thread and closes the connection, which stops
//! the server.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::{Duration, Instant};

use draftscope_http::{Client, HttpError};
use draftscope_protocol::{Lane, Piece};

use super::server::Request;

/// Most lines that wait.
pub(super) const WAITING: usize = 4096;

/// Most bytes of the lines that wait, [`OVERHEAD`] for each line included.
const MAX_BYTES: usize = 64 << 20;

/// Bytes that a line takes besides its text.
const OVERHEAD: usize = 128;

/// How long the reader sleeps between two looks for room.
const PAUSE: Duration = Duration::from_millis(10);

/// The bytes of a line that waits; dropping it makes room.
pub(super) struct Weight {
    bytes: usize,
    /// Of all lines of this answer that wait.
    total: Arc<AtomicUsize>,
}

impl Weight {
    /// Waits until there is room for so many bytes.
    fn wait(bytes: usize, total: &Arc<AtomicUsize>) -> Self {
        while total.load(Ordering::Acquire) > MAX_BYTES {
            thread::sleep(PAUSE);
        }
        total.fetch_add(bytes, Ordering::AcqRel);
        Self { bytes, total: Arc::clone(total) }
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// A line of an answer, its end, or an error.
pub(super) struct Read {
    pub(super) lane: Lane,
    /// Microseconds since the request.
    pub(super) at_us: u64,
    pub(super) line: Result<Option<String>, HttpError>,
    pub(super) _weight: Weight,
}

/// Posts a request and reads its answer line by line; returns the tokens of its prompt. The last thing sent is no line,
/// whatever happens to the thread.
///
/// # Errors
/// A sentence when the system cannot start a thread.
pub(super) fn start(
    client: &Client,
    request: Request,
    lane: Lane,
    sender: SyncSender<Read>,
) -> Result<Vec<Piece>, String> {
    let client = client.clone();
    let Request { path, body, prompt } = request;
    let read = move |send: &dyn Fn(Line) -> bool| match client.post_lines(&path, &body) {
        Err(error) => drop(send(Err(error))),
        Ok(mut answer) => loop {
            let line = answer.next_line();
            let is_last = !matches!(line, Ok(Some(_)));
            if !send(line) || is_last {
                return;
            }
        },
    };
    start_with(read, lane, sender).map(|()| prompt)
}

/// A line of an answer, none at its end, or an error.
type Line = Result<Option<String>, HttpError>;

/// Reads on a thread of its own. `read` sends what it reads, and stops once a line cannot be sent.
fn start_with(
    read: impl FnOnce(&dyn Fn(Line) -> bool) + Send + 'static,
    lane: Lane,
    sender: SyncSender<Read>,
) -> Result<(), String> {
    let run = move || {
        let (asked, waiting) = (Instant::now(), Arc::default());
        let send = |line: Line| {
            let at_us = u64::try_from(asked.elapsed().as_micros()).unwrap_or(u64::MAX);
            let bytes = line.as_ref().map_or(0, |line| line.as_ref().map_or(0, String::len));
            let _weight = Weight::wait(bytes + OVERHEAD, &waiting);
            sender.send(Read { lane, at_us, line, _weight }).is_ok()
        };
        if catch_unwind(AssertUnwindSafe(|| read(&send))).is_err() {
            send(Err(HttpError::Stopped));
        }
    };
    let started = thread::Builder::new().name("attach-read".into()).spawn(run);
    started.map(drop).map_err(|error| format!("the system cannot start a thread to read the answer: {error}"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::sync::mpsc::sync_channel;

    use super::*;
    use draftscope_http::Patience;

    /// A server that sends lines of a mebibyte without end; counts them, and then says that its client is gone.
    fn flood() -> (Client, Arc<AtomicUsize>, thread::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let sent = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&sent);
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").unwrap();
            let line = [vec![b':'; (1 << 20) - 1], vec![b'\n']].concat();
            while stream.write_all(&line).is_ok() {
                count.fetch_add(1, Ordering::AcqRel);
            }
        });
        let second = Duration::from_secs(1);
        let patience = Patience { connect: 60 * second, answer: 60 * second, silence: 60 * second };
        (Client::new(&url, draftscope_http::Access::default(), patience).unwrap(), sent, server)
    }

    #[test]
    fn lines_that_nobody_takes_wait_within_a_bound() {
        let (client, sent, server) = flood();
        let (sender, lines) = sync_channel(WAITING);
        let request = Request { path: "/".to_owned(), body: serde_json::Value::Null, prompt: Vec::new() };
        start(&client, request, Lane::Speculative, sender).unwrap();
        // until at least so many were sent, and then no more for a while
        let settled = |least| {
            while sent.load(Ordering::Acquire) < least {
                thread::sleep(Duration::from_millis(5));
            }
            let (mut now, mut quiet) = (0, 0);
            while quiet < 20 {
                thread::sleep(Duration::from_millis(20)); // often, so that the other threads get to run meanwhile
                let before = std::mem::replace(&mut now, sent.load(Ordering::Acquire));
                quiet = if now == before { quiet + 1 } else { 0 };
            }
            now
        };
        let now = settled(32);
        // beside the lines, the system's buffers of both ends are full
        assert!(now <= 64 + 24, "{now} MiB");
        for _ in 0..8 {
            assert!(lines.recv().unwrap().line.unwrap().unwrap().starts_with(':'));
        }
        settled(now + 1); // hangs here if there is no room again
        drop(lines);
        server.join().unwrap(); // hangs here if the connection stays open
    }

    #[test]
    fn a_thread_that_panics_says_so_in_place_of_an_end() {
        let (sender, lines) = sync_channel(WAITING);
        let read = |send: &dyn Fn(Line) -> bool| {
            send(Ok(Some("a".to_owned())));
            panic!("a test's panic");
        };
        start_with(read, Lane::Speculative, sender.clone()).unwrap();
        assert_eq!(lines.recv().unwrap().line, Ok(Some("a".to_owned())));
        let last = lines.recv_timeout(Duration::from_secs(60)).unwrap().line;
        assert_eq!(last, Err(HttpError::Stopped), "the run keeps a sender, so a silent end would be waited for");
        drop(sender);
    }
}
