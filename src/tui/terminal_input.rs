//! Input from the terminal: keys, and the report that the terminal is gone.
//!
//! Invariant: the front end's thread never waits inside crossterm, because crossterm's reader does not return once the
//! terminal is gone: it takes end of file (0 bytes) and EIO for "nothing yet" and reads again, at full load.

use std::io;
use std::thread;

use crossterm::event::{Event, EventStream};
use futures::{Stream, StreamExt, stream};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Keys, mouse, pastes and sizes, read on a thread of its own until the stream is dropped.
pub(super) fn inputs() -> io::Result<impl Stream<Item = io::Result<Event>> + Unpin> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let (sender, mut receiver) = unbounded_channel();
    thread::Builder::new().name("keys".to_owned()).spawn(move || runtime.block_on(forward(&sender)))?;
    Ok(stream::poll_fn(move |context| receiver.poll_recv(context)))
}

async fn forward(sender: &UnboundedSender<io::Result<Event>>) {
    let mut events = EventStream::new();
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = sender.closed() => return,
        };
        let Some(event) = event else { return };
        if sender.send(event).is_err() {
            return;
        }
    }
}

/// Calls `then` once the terminal is gone, or somebody asks the process to end. The terminal's window was closed, or the
/// connection to it was lost; the kernel sends SIGHUP for that only to processes whose controlling terminal it is.
#[cfg(unix)]
pub(super) fn on_end(then: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("hangup".to_owned()).spawn(|| {
        if has_ended(None) {
            then();
        }
    })?;
    Ok(())
}

/// Whether the terminal is gone.
#[cfg(unix)]
pub(super) fn is_gone() -> bool {
    has_ended(Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 }))
}

/// Waits until a terminal on standard input or output hangs up or a signal asks the process to end, or until a timeout. If
/// there is neither a terminal nor somebody who listens for signals, or the system cannot poll terminals, this never happens.
#[cfg(unix)]
fn has_ended(wait: Option<&rustix::event::Timespec>) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    let (input, output) = (io::stdin(), io::stdout());
    let signal = crate::fatal::end_requested();
    // without events to wait for, poll reports errors and hang-ups alone
    let watched = |is_terminal: bool, fd| is_terminal.then_some(fd);
    let mut fds: Vec<PollFd<'_>> = [
        watched(rustix::termios::isatty(&input), PollFd::new(&input, PollFlags::empty())),
        watched(rustix::termios::isatty(&output), PollFd::new(&output, PollFlags::empty())),
        signal.as_ref().map(|signal| PollFd::new(signal, PollFlags::IN)),
    ]
    .into_iter()
    .flatten()
    .collect();
    if fds.is_empty() {
        return false;
    }
    while let Err(rustix::io::Errno::INTR) = poll(&mut fds, wait) {}
    fds.iter().any(|fd| fd.revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::IN))
}

#[cfg(not(unix))]
pub(super) fn on_end(_: impl FnOnce() + Send + 'static) -> io::Result<()> {
    Ok(())
}

#[cfg(not(unix))]
pub(super) fn is_gone() -> bool {
    false
}
