//! Signals: the first one stops the running answer as a key would, so that its recording is complete.
//!
//! Invariant: the second signal ends the program as if there were no handler.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use draftscope::headless::Driver;
use draftscope::host::fatal::EndRequest;

/// A signal stopped the command before its end.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("stopped by a signal; what was printed or recorded until then is complete")]
pub(crate) struct Stopped {
    signal: i32,
}

impl Stopped {
    /// The exit status that shells give a signal: 128 + its number.
    pub(crate) fn status(self) -> ExitCode {
        ExitCode::from(u8::try_from(128 + self.signal).unwrap_or(u8::MAX))
    }
}

/// Listens for the signals that ask a program to end.
pub(crate) struct StopSignal(EndRequest);

impl StopSignal {
    /// Listens from now on.
    pub(crate) fn listen() -> Result<Self> {
        EndRequest::listen().map(Self).context("cannot listen for signals")
    }

    /// Makes the first signal stop a driver's answers.
    pub(crate) fn watch(&self, driver: &mut Driver) {
        driver.stop_on(self.flag());
    }

    /// Set once a signal came.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        self.0.flag()
    }

    /// Whether there is no answer that a signal could stop, as while input is waited for: then the first one ends the
    /// program.
    pub(crate) fn is_idle(&self, is_idle: bool) {
        self.0.pause(is_idle);
    }

    /// Whether a signal came.
    pub(crate) fn is_set(&self) -> bool {
        self.flag().load(Ordering::Relaxed)
    }

    /// The error to end with.
    pub(crate) fn stopped(&self) -> Stopped {
        Stopped { signal: self.0.signal() }
    }
}
