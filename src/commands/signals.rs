//! What a signal does to an answer under way: it ends as if it had been stopped, so that its recording
//! gets its end.
//!
//! Invariant: the second signal ends the program as if nobody had listened.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, Result};
use draftscope::headless::Driver;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// A signal came before all was done.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("stopped by a signal before all was done; what was printed or recorded until then is whole")]
pub(crate) struct Stopped {
    signal: usize,
}

impl Stopped {
    /// As a shell tells a signal.
    pub(crate) fn status(self) -> ExitCode {
        ExitCode::from(u8::try_from(128 + self.signal).unwrap_or(u8::MAX))
    }
}

/// Listens for the signals that ask a program to end.
pub(crate) struct Stop {
    is_asked: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Stop {
    /// Listens from now on. Called once, when there is an answer that can be stopped.
    pub(crate) fn listen() -> Result<Self> {
        let (is_asked, signal) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        for number in [SIGINT, SIGTERM] {
            // in this order: the first signal finds nothing asked yet
            flag::register_conditional_default(number, Arc::clone(&is_asked))
                .and_then(|_| flag::register_usize(number, Arc::clone(&signal), usize::try_from(number).unwrap_or(0)))
                .and_then(|_| flag::register(number, Arc::clone(&is_asked)))
                .context("the system lets nobody listen for signals")?;
        }
        Ok(Self { is_asked, signal })
    }

    /// Has a driver's answers end with the first signal.
    pub(crate) fn watch(&self, driver: &mut Driver) {
        driver.stop_on(self.flag());
    }

    /// Set once a signal came.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_asked)
    }

    /// What to end with.
    pub(crate) fn stopped(&self) -> Stopped {
        Stopped { signal: self.signal.load(Ordering::Relaxed) }
    }
}
