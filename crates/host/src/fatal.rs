//! Restores the terminal before a signal ends the process, and notes the first signal that asks it to end.
//!
//! Invariant: a signal that is not noted ends the process as if there were no handler. The handler can interrupt any code,
//! so it makes only system calls and reads only atomics and values that are set once. If a mapped model file is
//! truncated while the program reads it, the program prints an error and ends. Child processes end with this one, see
//! [`GroupChild`].

#[cfg(unix)]
mod asking;
#[cfg(not(unix))]
mod asking_elsewhere;
mod child;
#[cfg(unix)]
mod empty_file;
#[cfg(unix)]
mod handler;
mod mapped;
mod panics;
mod refused_memory;

#[cfg(unix)]
pub use self::asking::{EndRequest, end_requested};
#[cfg(not(unix))]
pub use self::asking_elsewhere::EndRequest;
pub use self::child::GroupChild;
#[cfg(unix)]
pub use self::empty_file::EmptyFile;
pub use self::mapped::Mapping;
pub use self::refused_memory::NotingAllocator;
pub use draftscope_kernels::OutOfMemory;

/// Installs the handler of fatal signals and the hook of panics for this process. Called once, in `main`.
pub fn install() {
    panics::install();
    #[cfg(unix)]
    handler::install();
}

/// Tells the handler that the program takes over the terminal: it saves the mode to restore.
pub fn screen_is_taken() {
    #[cfg(unix)]
    handler::screen_is_taken();
}

/// Tells the handler that the terminal is restored, so there is nothing left to do.
pub fn screen_is_free() {
    #[cfg(unix)]
    handler::screen_is_free();
}

/// Ends the process by a signal with its default action, so that its sender sees the effect.
#[cfg(unix)]
pub fn die_of(signal: i32) {
    handler::die_of(signal);
}
