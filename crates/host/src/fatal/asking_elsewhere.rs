//! Signals with which somebody asks this process to end, on systems other than Unix.
//!
//! Invariant: the second signal ends the process.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Listens for signals that ask the process to end.
#[derive(Debug)]
pub struct EndRequest {
    is_requested: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl EndRequest {
    /// Listens from now on.
    ///
    /// # Errors
    /// When the system takes no handler.
    pub fn listen() -> io::Result<Self> {
        let new = Self { is_requested: Arc::default(), signal: Arc::default() };
        for (number, stored) in [(SIGINT, 2), (SIGTERM, 15)] {
            // in this order, so that the first signal finds the flag not set yet
            flag::register_conditional_default(number, Arc::clone(&new.is_requested))?;
            flag::register_usize(number, Arc::clone(&new.signal), stored)?;
            flag::register(number, Arc::clone(&new.is_requested))?;
        }
        Ok(new)
    }

    /// Has no effect on these systems.
    pub fn pause(&self, _is_paused: bool) {}

    /// Set once a signal came.
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_requested)
    }

    /// The signal that came; 0 without one.
    #[must_use]
    pub fn signal(&self) -> i32 {
        i32::try_from(self.signal.load(Ordering::SeqCst)).unwrap_or(0)
    }
}
