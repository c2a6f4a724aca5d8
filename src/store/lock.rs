//! The right to change a place that several processes share.
//!
//! Invariant: one process at a time holds it, and it ends with the process at the latest; whoever waits for
//! it looks again at what is there, since the other one may have done the work.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

use super::progress::Progress;

/// The right; given back on drop.
#[derive(Debug)]
pub(super) struct Lock(#[allow(dead_code, reason = "closing the file unlocks it")] File);

impl Lock {
    /// Waits for it, telling the user at what another process works; `path` is the file that stands for it.
    ///
    /// # Errors
    /// When that file cannot be made, or the file system knows no locks.
    pub(super) fn wait(path: &Path, what: &str, progress: &mut dyn Progress) -> io::Result<Self> {
        let file = File::create(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                progress.step(&format!("Another draftscope is at work on {what}; waiting for it."));
                file.lock()?;
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        Ok(Self(file))
    }

    /// Takes it if nobody has it.
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

    /// Passes on what it is told.
    struct Hearing(mpsc::Sender<String>);

    impl Progress for Hearing {
        fn step(&mut self, text: &str) {
            self.0.send(text.to_owned()).unwrap();
        }
        fn bytes(&mut self, _done: u64, _total: u64) {}
        fn end(&mut self) {}
    }

    #[test]
    fn the_second_process_is_notified_and_waits() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = Lock::wait(&path, "x", &mut ()).unwrap();
        assert!(Lock::if_free(&path).is_none());
        let (told, heard) = mpsc::channel();
        let second = thread::spawn({
            let path = path.clone();
            move || Lock::wait(&path, "the kettle", &mut Hearing(told)).map(drop)
        });
        assert_eq!(heard.recv().unwrap(), "Another draftscope is at work on the kettle; waiting for it.");
        assert!(!second.is_finished());
        drop(first);
        second.join().unwrap().unwrap();
        assert!(Lock::if_free(&path).is_some());
    }
}
