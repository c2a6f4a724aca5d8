//! Signals with which somebody asks this process to end.
//!
//! Invariant: while an [`EndRequest`] listens, the first such signal only sets its flag and wakes who waits for it, so that an answer
//! is stopped as by a key and its recording gets its end. The second one ends the process, as the first does while nobody listens.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

use libc::c_int;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

/// Signals that end a process by default and report no fault in it. SIGKILL cannot be taken.
pub(super) const ASKING: &[c_int] = &[
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGXCPU,
    #[cfg(target_os = "linux")]
    libc::SIGIO,
    #[cfg(target_os = "linux")]
    libc::SIGPWR,
    #[cfg(target_os = "linux")]
    libc::SIGSTKFLT,
];

/// What the handler reads; set once.
static LISTENER: OnceLock<Listener> = OnceLock::new();

/// Whether the next signal is only noted.
static IS_ARMED: AtomicBool = AtomicBool::new(false);

/// The signal that was noted last.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

struct Listener {
    is_requested: Arc<AtomicBool>,
    /// One byte for each signal that was noted.
    read: OwnedFd,
    write: OwnedFd,
}

/// Listens for signals that ask the process to end, until it is dropped.
#[derive(Debug)]
pub struct EndRequest(());

impl EndRequest {
    /// Listens from now on; [`super::install`] was called before.
    ///
    /// # Errors
    /// When the system has no pipe left.
    pub fn listen() -> io::Result<Self> {
        if LISTENER.get().is_none() {
            let (read, write) = io::pipe()?;
            let _ = LISTENER.set(Listener { is_requested: Arc::default(), read: read.into(), write: write.into() });
        }
        IS_ARMED.store(true, Ordering::SeqCst);
        Ok(Self(()))
    }

    /// Lets signals end the process while it is paused; and after one came.
    pub fn pause(&self, is_paused: bool) {
        IS_ARMED.store(!is_paused && self.signal() == 0, Ordering::SeqCst);
    }

    /// Set once a signal came.
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        LISTENER.get().map(|listener| Arc::clone(&listener.is_requested)).unwrap_or_default()
    }

    /// The signal that came; 0 without one.
    #[must_use]
    pub fn signal(&self) -> c_int {
        SIGNAL.load(Ordering::SeqCst)
    }
}

impl Drop for EndRequest {
    fn drop(&mut self) {
        IS_ARMED.store(false, Ordering::SeqCst);
    }
}

/// Readable once a signal was noted; none before anybody listened.
#[must_use]
pub fn end_requested() -> Option<BorrowedFd<'static>> {
    LISTENER.get().map(|listener| listener.read.as_fd())
}

/// Called by the handler: whether the signal is noted, and the process goes on.
pub(super) fn note(signal: c_int) -> bool {
    let Some(listener) = LISTENER.get().filter(|_| IS_ARMED.swap(false, Ordering::SeqCst)) else { return false };
    SIGNAL.store(signal, Ordering::SeqCst);
    listener.is_requested.store(true, Ordering::SeqCst);
    let _ = rustix::io::write(&listener.write, b"!");
    true
}
