//! Signals: the first one stops the running answer as a key would, so that its recording is complete.
//!
//! Invariant: the second signal ends the program as if there were no handler.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, Result};
use draftscope::headless::Driver;
use signal_hook::flag;

/// Signals that ask a program to end. A terminal that is closed sends SIGHUP; `nohup` lets a program ignore it.
#[cfg(unix)]
fn ending() -> impl Iterator<Item = i32> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| *signal != SIGHUP || !draftscope::fatal::is_ignored(SIGHUP))
}

#[cfg(not(unix))]
fn ending() -> impl Iterator<Item = i32> {
    [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM].into_iter()
}

/// A signal stopped the command before its end.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("stopped by a signal; what was printed or recorded until then is complete")]
pub(crate) struct Stopped {
    signal: usize,
}

impl Stopped {
    /// The exit status that shells give a signal: 128 + its number.
    pub(crate) fn status(self) -> ExitCode {
        ExitCode::from(u8::try_from(128 + self.signal).unwrap_or(u8::MAX))
    }
}

/// Listens for the signals that ask a program to end.
pub(crate) struct StopSignal {
    is_requested: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl StopSignal {
    /// Listens from now on. Called once, when there is an answer that can be stopped.
    pub(crate) fn listen() -> Result<Self> {
        let (is_requested, signal) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        for number in ending() {
            // in this order, so that the first signal finds the flag not set yet
            flag::register_conditional_default(number, Arc::clone(&is_requested))
                .and_then(|_| flag::register_usize(number, Arc::clone(&signal), usize::try_from(number).unwrap_or(0)))
                .and_then(|_| flag::register(number, Arc::clone(&is_requested)))
                .context("cannot install handlers for signals")?;
        }
        Ok(Self { is_requested, signal })
    }

    /// Makes the first signal stop a driver's answers.
    pub(crate) fn watch(&self, driver: &mut Driver) {
        driver.stop_on(self.flag());
    }

    /// Set once a signal came.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_requested)
    }

    /// The error to end with.
    pub(crate) fn stopped(&self) -> Stopped {
        Stopped { signal: self.signal.load(Ordering::Relaxed) }
    }
}
