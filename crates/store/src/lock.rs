//! A lock on a folder that several processes share.
//!
//! Invariant: one process at a time has the lock, and it ends with the process at the latest. A process that waited
//! for it checks again what is there, because the other one may have done the work.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

use super::progress::Progress;

/// The lock; released on drop.
#[derive(Debug)]
pub(super) struct Lock(#[allow(dead_code, reason = "closing the file unlocks it")] File);

impl Lock {
    /// Takes the lock on the file `path`. If another process has it, reports that it works on `what`, and waits.
    ///
    /// # Errors
    /// When the file cannot be created, or the file system has no locks.
    pub(super) fn wait(path: &Path, what: &str, progress: &mut dyn Progress) -> io::Result<Self> {
        let file = File::create(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                progress.step(&format!("Another draftscope is working on {what}; waiting for it."));
                file.lock()?;
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        Ok(Self(file))
    }

    /// Takes the lock if no process has it.
    pub(super) fn if_free(path: &Path) -> Option<Self> {
        let file = File::create(path).ok()?;
        file.try_lock().ok()?;
        Some(Self(file))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// Forwards the steps.
    struct Steps(mpsc::Sender<String>);

    impl Progress for Steps {
        fn step(&mut self, text: &str) {
            self.0.send(text.to_owned()).unwrap();
        }
        fn bytes(&mut self, _done: u64, _total: u64) {}
        fn end(&mut self) {}
    }

    #[test]
    fn the_second_process_reports_that_it_waits() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = Lock::wait(&path, "x", &mut ()).unwrap();
        assert!(Lock::if_free(&path).is_none());
        let (sender, steps) = mpsc::channel();
        let second = thread::spawn({
            let path = path.clone();
            move || Lock::wait(&path, "the cache", &mut Steps(sender)).map(drop)
        });
        assert_eq!(steps.recv().unwrap(), "Another draftscope is working on the cache; waiting for it.");
        assert!(!second.is_finished());
        drop(first);
        second.join().unwrap().unwrap();
        assert!(Lock::if_free(&path).is_some());
    }
}
