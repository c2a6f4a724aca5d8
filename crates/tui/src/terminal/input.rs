//! Input from the terminal: keys, and the report that the terminal is gone.
//!
//! Invariant: the front end's thread never waits inside crossterm, because crossterm's reader does not return once the
//! terminal is gone: it takes end of file (0 bytes) for "nothing yet" and reads again, at full load.
//!
//! crossterm's feature `use-dev-tty` asks the system again for what is left to read after each read. Without it, keys
//! after the first 1,024 bytes wait for the next key.

use std::io;
#[cfg(unix)]
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use crossterm::event::{Event, poll, read};
use futures::{Stream, StreamExt, future, stream};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::sync::watch;

use super::background::fitting_theme;

/// Longest wait for an input. Its end has no effect but another wait.
pub(crate) const LONG: Duration = Duration::from_secs(24 * 60 * 60);

/// Longest gap between two inputs that are read together; crossterm does not look at what it has read within no time.
const GAP: Duration = Duration::from_millis(1);

/// Time without an input after which the terminal may be asked for its colours.
const QUIET: Duration = Duration::from_millis(500);

/// Most inputs that are read together: as many as crossterm reads bytes.
const MAX_TOGETHER: usize = 1024;

/// Most inputs that wait for the front end; the others stay with the terminal.
const MAX_WAITING: usize = 1 << 16;

/// Inputs that come within `wait`, and those right after them. Each input takes the same time, however many there are.
pub(crate) fn next_inputs(wait: Duration) -> io::Result<Vec<Event>> {
    let mut inputs = Vec::new();
    while inputs.len() < MAX_TOGETHER && poll(if inputs.is_empty() { wait } else { GAP })? {
        inputs.push(read()?);
    }
    Ok(inputs)
}

/// Keys, mouse, pastes and sizes, read on a thread of its own until the stream is dropped. The stream's end is an error.
/// After the terminal got the focus, the theme that fits its background is sent to `fitting`: most people change between
/// dark and light in another window. It is asked once no input comes, since an input beside the answer would be lost. The
/// reports of mode 2031 cannot be used, since crossterm takes the keys after one for its rest.
pub(crate) fn inputs(
    fitting: Option<watch::Sender<Option<&'static str>>>,
) -> io::Result<impl Stream<Item = io::Result<Event>> + Unpin> {
    let mut is_due = false;
    inputs_of(move || {
        let inputs = next_inputs(if is_due { QUIET } else { LONG })?;
        if let Some(fitting) = fitting.as_ref().filter(|_| is_due && inputs.is_empty()) {
            // this thread alone reads the terminal, so that the answer comes to it
            fitting.send_replace(fitting_theme());
            is_due = false;
        }
        is_due |= fitting.is_some() && inputs.contains(&Event::FocusGained);
        Ok(inputs)
    })
}

fn inputs_of(
    mut next: impl FnMut() -> io::Result<Vec<Event>> + Send + 'static,
) -> io::Result<impl Stream<Item = io::Result<Event>> + Unpin> {
    let (sender, receiver) = channel(MAX_WAITING);
    let forward = move || {
        while !sender.is_closed() {
            let inputs = next().map_or_else(|error| vec![Err(error)], |inputs| inputs.into_iter().map(Ok).collect());
            for input in inputs {
                let is_last = input.is_err();
                if sender.blocking_send(input).is_err() || is_last {
                    return;
                }
            }
        }
    };
    thread::Builder::new().name("keys".to_owned()).spawn(forward)?;
    let ended = || future::ready(Err(io::Error::other("the thread that reads keys ended")));
    Ok(Inputs(receiver).chain(stream::once(ended())))
}

/// What the thread has read. Dropped, it wakes the thread, which would otherwise take keys that are meant for the shell.
struct Inputs(Receiver<io::Result<Event>>);

impl Stream for Inputs {
    type Item = io::Result<Event>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

impl Drop for Inputs {
    fn drop(&mut self) {
        self.0.close();
        // crossterm waits for new sizes too; nothing else heeds this signal
        #[cfg(unix)]
        let _ = signal_hook::low_level::raise(signal_hook::consts::SIGWINCH);
    }
}

/// Calls `then` once the terminal is gone, or somebody asks the process to end. The terminal's window was closed, or the
/// connection to it was lost; the kernel sends SIGHUP for that only to processes whose controlling terminal it is.
#[cfg(unix)]
pub(crate) fn on_end(then: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("hangup".to_owned()).spawn(|| after(|| has_ended(None), then))?;
    Ok(())
}

/// Calls `then` if it has ended, and also if waiting for that panics: nothing else would end the program then.
#[cfg(unix)]
fn after(has_ended: impl FnOnce() -> bool, then: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(has_ended)).unwrap_or(true) {
        then();
    }
}

/// Whether the terminal is gone.
#[cfg(unix)]
pub(crate) fn is_gone() -> bool {
    has_ended(Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 }))
}

/// Waits until a terminal on standard input or output hangs up or a signal asks the process to end, or until a timeout. If
/// there is neither a terminal nor somebody who listens for signals, or the system cannot poll terminals, this never happens.
#[cfg(unix)]
fn has_ended(wait: Option<&rustix::event::Timespec>) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    let (input, output) = (io::stdin(), io::stdout());
    let signal = draftscope_host::fatal::end_requested();
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
pub(crate) fn on_end(_: impl FnOnce() + Send + 'static) -> io::Result<()> {
    Ok(())
}

#[cfg(not(unix))]
pub(crate) fn is_gone() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(next: impl FnMut() -> io::Result<Vec<Event>> + Send + 'static) -> Vec<String> {
        let inputs = inputs_of(next).unwrap().map(|input| match input {
            Ok(input) => format!("{input:?}"),
            Err(error) => error.to_string(),
        });
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(inputs.collect())
    }

    #[test]
    fn a_panic_of_the_thread_that_reads_keys_is_an_error_after_the_keys_before_it() {
        let mut calls = 0;
        let inputs = all(move || {
            calls += 1;
            assert!(calls < 3, "a fault of the reader");
            Ok(vec![Event::FocusGained])
        });
        assert_eq!(inputs, ["FocusGained", "FocusGained", "the thread that reads keys ended"]);
    }

    #[test]
    fn a_terminal_that_cannot_be_read_is_reported_and_not_read_again() {
        let mut calls = 0;
        let inputs = all(move || {
            calls += 1;
            assert_eq!(calls, 1);
            Err(io::Error::other("it burnt down"))
        });
        assert_eq!(inputs[0], "it burnt down");
    }

    #[cfg(unix)]
    #[test]
    fn a_panic_of_the_thread_that_waits_for_the_end_ends_the_program() {
        for (waits, ends) in [((|| true) as fn() -> bool, true), (|| false, false), (|| panic!("a fault"), true)] {
            let mut has_ended = false;
            after(waits, || has_ended = true);
            assert_eq!(has_ended, ends);
        }
    }

    #[test]
    fn the_thread_ends_when_nobody_listens_any_more() {
        let (ended, is_ended) = std::sync::mpsc::channel::<()>();
        let inputs = inputs_of(move || {
            let _held = &ended;
            Ok(vec![Event::FocusLost])
        });
        drop(inputs);
        assert!(is_ended.recv().is_err(), "the thread has dropped its sender");
    }
}
