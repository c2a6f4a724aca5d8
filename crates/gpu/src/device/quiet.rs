//! Standard error during calls into drivers.
//!
//! Mesa's layer that sorts devices asks a Wayland display, and its library complains on standard error where
//! `XDG_RUNTIME_DIR` is not set, as in containers. A terminal program must not be written over, so standard error is
//! redirected to `/dev/null` for the time of such a call. Only in that case: other messages of drivers stay.

/// Calls `work`, without standard error where a library would complain on it.
#[cfg(target_os = "linux")]
pub(crate) fn quietly<T>(work: impl FnOnce() -> T) -> T {
    use std::sync::{Mutex, PoisonError};
    // one at a time, so that what is restored is never another call's replacement
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    if std::env::var_os("XDG_RUNTIME_DIR").is_some() {
        return work();
    }
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let _redirected = Redirected::new();
    work()
}

/// Calls `work`.
#[cfg(not(target_os = "linux"))]
pub(crate) fn quietly<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// Standard error while it is redirected; dropped, it is restored.
#[cfg(target_os = "linux")]
struct Redirected(std::os::fd::OwnedFd);

#[cfg(target_os = "linux")]
impl Redirected {
    /// `None` if it cannot be replaced: then it stays as it is.
    fn new() -> Option<Self> {
        let kept = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3).ok()?;
        let nothing = std::fs::File::options().write(true).open("/dev/null").ok()?;
        rustix::stdio::dup2_stderr(nothing).ok()?;
        Some(Self(kept))
    }
}

#[cfg(target_os = "linux")]
impl Drop for Redirected {
    fn drop(&mut self) {
        let _ = rustix::stdio::dup2_stderr(&self.0); // there is no other place to report to
    }
}
