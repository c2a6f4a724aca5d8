//! Connects to a plugin and reads its lines, in a thread of its own.
//!
//! Invariant: a line has at most [`MAX_LINE`] bytes, and no wait is longer than [`TICK`], so that the thread ends soon after
//! nobody needs it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use super::address::Address;
use super::lines::{Collector, Said};
use super::store::Store;

/// Longest line in bytes.
pub const MAX_LINE: usize = draftscope_http::MAX_LINE;

/// Longest wait for bytes before the thread looks whether it is still needed.
const TICK: Duration = Duration::from_millis(200);

/// First and longest wait before another try to connect.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));

/// Most faulty lines of a connection before it is given up.
const MAX_FAULTS: u32 = 16;

/// A connection.
trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// Reads lines of bounded length.
pub struct LineReader {
    stream: Box<dyn Stream>,
    buffer: Vec<u8>,
    /// Bytes of the buffer that hold no line end.
    searched: usize,
}

impl std::fmt::Debug for LineReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LineReader").field("waiting", &self.buffer.len()).finish_non_exhaustive()
    }
}

/// Connects to a plugin, which may take so long: a Unix socket whose queue is full keeps a connection waiting for ever.
///
/// # Errors
/// When nobody listens there, nobody accepts the connection, or the system cannot start a thread.
pub fn connect_within(address: &Address, longest: Duration) -> io::Result<LineReader> {
    let (sender, connected) = sync_channel(1);
    let address = address.clone();
    // a thread that still waits then ends with the program
    let wait = move || drop(sender.send(connect(&address)));
    thread::Builder::new().name("attach-connect".into()).spawn(wait)?;
    connected.recv_timeout(longest).unwrap_or_else(|error| match error {
        RecvTimeoutError::Timeout => {
            let why = format!("somebody listens there, and accepted no connection for {} s", longest.as_secs());
            Err(io::Error::new(ErrorKind::TimedOut, why))
        }
        RecvTimeoutError::Disconnected => {
            Err(io::Error::other("connecting to it stopped on an internal error; please report it"))
        }
    })
}

/// Connects to a plugin.
///
/// # Errors
/// When nobody listens there.
fn connect(address: &Address) -> io::Result<LineReader> {
    let stream: Box<dyn Stream> = match address {
        Address::Tcp(address) => {
            let stream = TcpStream::connect_timeout(address, Duration::from_secs(2))?;
            stream.set_read_timeout(Some(TICK))?;
            Box::new(stream)
        }
        #[cfg(unix)]
        Address::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(TICK))?;
            Box::new(stream)
        }
        #[cfg(not(unix))]
        Address::Unix(_) => return Err(io::Error::new(ErrorKind::Unsupported, "no Unix sockets on this system")),
    };
    Ok(LineReader { stream, buffer: Vec::new(), searched: 0 })
}

impl LineReader {
    /// The next line without its end; `None` if none came within the tick.
    ///
    /// # Errors
    /// At the end of the stream, and at a line longer than [`MAX_LINE`].
    pub fn next_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(at) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(self.searched + at + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.pop();
                self.searched = 0;
                return Ok(Some(line));
            }
            self.searched = self.buffer.len();
            if self.searched > MAX_LINE {
                let why = format!("it sends a line of more than {} KiB", MAX_LINE >> 10);
                return Err(io::Error::new(ErrorKind::InvalidData, why));
            }
            let mut chunk = [0; 1 << 16];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "it closed the connection")),
                Ok(len) => self.buffer.extend_from_slice(&chunk[..len]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Reads a plugin into `store` until nobody else has it, connecting again whenever the connection is gone.
pub(super) fn follow(address: &Address, store: &Arc<Store>) {
    let mut wait = RETRY.0;
    while Arc::strong_count(store) > 1 {
        let ended = connect(address).and_then(|mut lines| {
            store.connected();
            wait = RETRY.0;
            read(&mut lines, store)
        });
        match ended {
            Ok(()) => return,
            Err(error) => store.disconnected(&error.to_string()),
        }
        let until = Instant::now() + wait;
        while Instant::now() < until && Arc::strong_count(store) > 1 {
            thread::sleep(TICK.min(wait));
        }
        wait = (wait * 2).min(RETRY.1);
    }
}

fn read(lines: &mut LineReader, store: &Arc<Store>) -> io::Result<()> {
    let (mut collector, mut faults, mut number) = (Collector::default(), 0, 0_u64);
    while Arc::strong_count(store) > 1 {
        let Some(line) = lines.next_line()? else { continue };
        number += 1;
        match collector.push(&line) {
            Ok(Said::Nothing) => {}
            Ok(Said::Header(header)) => store.header(&header),
            Ok(Said::Round(request, round)) => store.round(request, *round),
            Ok(Said::Dropped(rounds)) => store.dropped(rounds),
            Ok(Said::Notice(message)) => store.notice(message),
            Err(fault) => {
                store.fault(number, &fault);
                faults += 1;
                if faults >= MAX_FAULTS {
                    return Err(io::Error::new(ErrorKind::InvalidData, format!("{MAX_FAULTS} of its lines are wrong")));
                }
            }
        }
    }
    Ok(())
}
