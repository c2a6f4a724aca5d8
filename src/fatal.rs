//! What happens before a fatal signal ends the process.
//!
//! Invariant: the terminal is put back first, and the signal then ends the process as if there were no handler. The
//! handler calls nothing but system calls and reads nothing but atomics and what was set once, since it can come
//! in the middle of anything. A mapped model file that is cut short under the program ends it with a sentence.

#[cfg(unix)]
mod handler;
mod mapped;

pub use self::mapped::Mapping;
pub use draftscope_kernels::OutOfMemory;

/// Puts back mouse, pastes, screen and cursor.
#[cfg(unix)]
const RESTORE: &[u8] = b"\x1b[?1006l\x1b[?1015l\x1b[?1003l\x1b[?1002l\x1b[?1000l\x1b[?2004l\x1b[?1049l\x1b[?25h";

/// Has fatal signals of this process put the terminal back. Called once, in `main`.
pub fn install() {
    #[cfg(unix)]
    handler::install();
}

/// The terminal is about to be taken over: its mode now is the one to put back.
pub fn screen_is_taken() {
    #[cfg(unix)]
    handler::screen_is_taken();
}

/// The terminal is put back; nothing is left to do for a handler.
pub fn screen_is_free() {
    #[cfg(unix)]
    handler::screen_is_free();
}
