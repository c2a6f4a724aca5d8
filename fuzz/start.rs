//! What every target does around its check.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

/// What the newest panic said.
static SAID: Mutex<String> = Mutex::new(String::new());

/// Renders a chat template if this process was started for that. Panics that the program catches are no crashes, so only
/// those that reach [`run`] end the process.
pub fn start() {
    if draftscope::model::text::template::process::start().is_some() {
        std::process::exit(0);
    }
    std::panic::set_hook(Box::new(|info| *SAID.lock().unwrap_or_else(PoisonError::into_inner) = info.to_string()));
}

/// Runs a check; a panic is a crash.
pub fn run(check: fn(&[u8]), bytes: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| check(bytes))).is_err() {
        eprintln!("{}", SAID.lock().unwrap_or_else(PoisonError::into_inner));
        std::process::abort();
    }
}
