//! Notices a standard output that is closed when the program starts.
//!
//! Rust's runtime opens `/dev/null` in its place before `main` runs, so that everything that is printed would be lost
//! without an error. Invariant: on Linux, writing to a standard output that was closed fails. A device that is always
//! full takes its place, and the error names the cause.

use std::io;

/// Makes writing to standard output fail if it was closed when the program started.
pub(crate) fn guard() {
    #[cfg(target_os = "linux")]
    if was_closed()
        && let Ok(full) = std::fs::File::options().write(true).open("/dev/full")
    {
        // what fails here is reported when something is printed
        let _ = rustix::stdio::dup2_stdout(&full);
    }
}

/// Why something could not be printed: one sentence.
pub(crate) fn explain(error: &io::Error) -> String {
    match was_closed() {
        true => "standard output is closed, so nothing can be printed; redirect it to a file".to_owned(),
        false => format!("cannot write to standard output: {error}"),
    }
}

/// Never known on this system.
#[cfg(not(target_os = "linux"))]
pub(crate) fn was_closed() -> bool {
    false
}

#[cfg(target_os = "linux")]
pub(crate) use before_main::was_closed;

#[cfg(target_os = "linux")]
mod before_main {
    use std::sync::atomic::{AtomicBool, Ordering};

    static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

    /// Whether standard output was closed when the program started.
    pub(crate) fn was_closed() -> bool {
        WAS_CLOSED.load(Ordering::Relaxed)
    }

    /// Runs before Rust's runtime. It makes one system call and sets one atomic.
    #[allow(unsafe_code, reason = "the only code that runs before the runtime, see below")]
    extern "C" fn check() {
        // SAFETY: it only asks for the flags of a file descriptor.
        WAS_CLOSED.store(unsafe { libc::fcntl(1, libc::F_GETFD) } == -1, Ordering::Relaxed);
    }

    // SAFETY: the loader calls the functions of this section with arguments that `check` ignores.
    #[allow(unsafe_code, reason = "the only code that runs before the runtime, see above")]
    #[used]
    #[unsafe(link_section = ".init_array")]
    static CHECK: extern "C" fn() = check;
}
