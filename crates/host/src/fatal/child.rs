//! Child processes that end with this one.
//!
//! Invariant: while a [`GroupChild`] runs, a signal that asks this process to end is first
//! passed to all processes of the child's group; then it has its previous effect. On Linux the child also ends if this
//! process is killed outright.

use std::io;
use std::process::{Child, Command, ExitStatus};

#[cfg(unix)]
pub(super) use unix::is_ignored;

/// A child with a process group of its own. Dropping it ends the group.
#[derive(Debug)]
pub struct GroupChild {
    child: Child,
    has_ended: bool,
}

impl GroupChild {
    /// Starts a program. One such child at a time is ended by signals.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        #[cfg(unix)]
        let child = unix::spawn(command)?;
        #[cfg(not(unix))]
        let child = command.spawn()?;
        Ok(Self { child, has_ended: false })
    }

    /// How it ended; none while it runs.
    ///
    /// # Errors
    /// When the system cannot say.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        self.has_ended |= status.is_some();
        Ok(status)
    }
}

impl Drop for GroupChild {
    fn drop(&mut self) {
        #[cfg(unix)]
        unix::leave((!self.has_ended).then_some(self.child.id()));
        if !self.has_ended {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

#[cfg(unix)]
mod unix {
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};
    use std::ptr::{null, null_mut};
    use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

    use libc::{c_int, sigaction};

    use crate::fatal::asking::ASKING;

    /// Group of the running child; 0 without one.
    static GROUP: AtomicI32 = AtomicI32::new(0);

    /// What each signal did before. The values live as long as the process, because a handler may be reading them.
    static BEFORE: [AtomicPtr<sigaction>; ASKING.len()] = [const { AtomicPtr::new(null_mut()) }; ASKING.len()];

    pub(super) fn spawn(command: &mut Command) -> io::Result<Child> {
        install();
        command.process_group(0);
        end_with_parent(command);
        let child = command.spawn();
        match &child {
            Ok(child) => GROUP.store(c_int::try_from(child.id()).unwrap_or(0), Ordering::SeqCst),
            Err(_) => leave(None),
        }
        child
    }

    /// Gives the signals their previous effect, and ends the group of a child that still runs.
    pub(super) fn leave(running: Option<u32>) {
        if let Some(group) = running.and_then(|id| c_int::try_from(id).ok()).filter(|id| *id > 1) {
            kill(group);
        }
        GROUP.store(0, Ordering::SeqCst);
        for (signal, before) in ASKING.iter().copied().zip(&BEFORE) {
            let before = before.swap(null_mut(), Ordering::SeqCst);
            if !before.is_null() {
                set(signal, before);
            }
        }
    }

    /// Whether this process ignores a signal, as `nohup` sets it.
    pub(in crate::fatal) fn is_ignored(signal: c_int) -> bool {
        current(signal).is_some_and(|action| action.sa_sigaction == libc::SIG_IGN)
    }

    #[allow(unsafe_code, reason = "the system's interface for signals is unsafe, see below")]
    fn current(signal: c_int) -> Option<sigaction> {
        let mut now = MaybeUninit::<sigaction>::zeroed();
        // SAFETY: both pointers are valid for the call, and zeros are a valid `sigaction`.
        unsafe { (libc::sigaction(signal, null(), now.as_mut_ptr()) == 0).then(|| now.assume_init()) }
    }

    #[allow(unsafe_code, reason = "the system's interface for signals is unsafe, see below")]
    fn install() {
        for (signal, before) in ASKING.iter().copied().zip(&BEFORE) {
            let Some(old) = current(signal).filter(|old| old.sa_sigaction != libc::SIG_IGN) else { continue };
            if before.load(Ordering::SeqCst).is_null() {
                before.store(Box::into_raw(Box::new(old)), Ordering::SeqCst);
                // SAFETY: zeros are a valid `sigaction`; `handle` has the signature of a handler without SA_SIGINFO.
                let mut new = unsafe { MaybeUninit::<sigaction>::zeroed().assume_init() };
                new.sa_sigaction = handle as *const () as usize;
                new.sa_flags = libc::SA_RESTART;
                set(signal, &raw const new);
            }
        }
    }

    /// Makes a signal have this effect.
    #[allow(unsafe_code, reason = "the system's interface for signals is unsafe, see below")]
    fn set(signal: c_int, action: *const sigaction) {
        // SAFETY: callers pass a pointer to a complete value; the handlers in it are safe in a signal handler.
        let _ = unsafe { libc::sigaction(signal, action, null_mut()) };
    }

    #[allow(unsafe_code, reason = "a signal is sent, which touches no memory")]
    fn kill(group: c_int) {
        // SAFETY: it only sends a signal.
        let _ = unsafe { libc::kill(-group, libc::SIGTERM) };
    }

    /// Passes the signal on, and lets it come again with its previous effect.
    #[allow(unsafe_code, reason = "it raises a signal, see below")]
    extern "C" fn handle(signal: c_int) {
        let group = GROUP.swap(0, Ordering::SeqCst);
        if group > 1 {
            kill(group);
        }
        let index = ASKING.iter().position(|own| *own == signal);
        let before = index.map_or(null_mut(), |index| BEFORE[index].load(Ordering::SeqCst));
        // SAFETY: zeros are a valid `sigaction`, which is the default effect; `before` leads to a value that is never
        // freed. A raised signal waits until this returns.
        unsafe {
            let default = MaybeUninit::<sigaction>::zeroed().assume_init();
            set(signal, if before.is_null() { &raw const default } else { before });
            libc::raise(signal);
        }
    }

    #[cfg(target_os = "linux")]
    #[allow(unsafe_code, reason = "code between fork and exec is unsafe, see below")]
    fn end_with_parent(command: &mut Command) {
        // SAFETY: between fork and exec it makes one system call and allocates nothing.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            });
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn end_with_parent(_: &mut Command) {}
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_dropped_child_ends_with_its_own_children() {
        let mut command = Command::new("sh");
        let dir = tempfile::tempdir().unwrap();
        let note = dir.path().join("pid");
        command.args(["-c", &format!("sleep 600 & echo $! > '{0}.new'; mv '{0}.new' '{0}'; wait", note.display())]);
        let mut child = GroupChild::spawn(&mut command).unwrap();
        let began = Instant::now();
        let pid = loop {
            assert!(began.elapsed() < Duration::from_secs(120) && child.try_wait().unwrap().is_none());
            match std::fs::read_to_string(&note) {
                Ok(pid) => break pid,
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let runs = || Command::new("kill").args(["-0", pid.trim()]).output().unwrap().status.success();
        assert!(runs());
        drop(child);
        while runs() {
            assert!(began.elapsed() < Duration::from_secs(120), "the child's child still runs");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
