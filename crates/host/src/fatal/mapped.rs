//! The addresses of mapped model files, stored so that a signal handler can read them.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A range of addresses, and the next entry of the list. Entries are reused and never freed.
struct Entry {
    start: AtomicUsize,
    /// 0 = unused.
    end: AtomicUsize,
    next: OnceLock<&'static Entry>,
}

impl Entry {
    const fn new() -> Self {
        Self { start: AtomicUsize::new(0), end: AtomicUsize::new(0), next: OnceLock::new() }
    }

    fn all() -> impl Iterator<Item = &'static Self> {
        std::iter::successors(Some(&FIRST), |entry| entry.next.get().copied())
    }
}

static FIRST: Entry = Entry::new();

/// Locked while an entry is taken.
static TAKING: Mutex<()> = Mutex::new(());

/// Registers a mapped model file's addresses until it is dropped.
pub struct Mapping(&'static Entry);

impl std::fmt::Debug for Mapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mapping")
    }
}

impl Mapping {
    /// Registers the addresses of a mapped model file.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let Range { start, end } = bytes.as_ptr_range();
        let _taking = TAKING.lock().unwrap_or_else(PoisonError::into_inner);
        let unused = Entry::all().find(|entry| entry.end.load(Ordering::Acquire) == 0);
        let entry = unused.unwrap_or_else(append);
        entry.start.store(start.addr(), Ordering::Release);
        entry.end.store(end.addr(), Ordering::Release);
        Self(entry)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.0.end.store(0, Ordering::Release);
    }
}

fn append() -> &'static Entry {
    let entry: &'static Entry = Box::leak(Box::new(Entry::new()));
    if let Some(last) = Entry::all().last() {
        let _ = last.next.set(entry); // no other thread appends while `TAKING` is locked
    }
    entry
}

/// Whether an address lies in a mapped model file. The last page is mapped whole, so addresses after the file's end do
/// not fault there.
#[cfg_attr(not(unix), allow(dead_code, reason = "only the handler calls it"))]
pub(super) fn is_mapped(address: usize) -> bool {
    Entry::all().any(|entry| {
        let end = entry.end.load(Ordering::Acquire);
        (entry.start.load(Ordering::Acquire)..end).contains(&address)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_registered_while_a_file_is_mapped() {
        let files: Vec<Vec<u8>> = (1..20).map(|len| vec![0; 100 * len]).collect();
        let mappings: Vec<Mapping> = files.iter().map(|file| Mapping::of(file)).collect();
        let ends = |file: &[u8]| [file.as_ptr().addr(), file.as_ptr().addr() + file.len() - 1];
        assert!(files.iter().flat_map(|file| ends(file)).all(is_mapped));
        drop(mappings);
        assert!(!files.iter().flat_map(|file| ends(file)).any(is_mapped));
        let count = Entry::all().count();
        let again: Vec<Mapping> = files.iter().map(|file| Mapping::of(file)).collect();
        assert_eq!(Entry::all().count(), count, "entries are reused");
        drop(again);
    }
}
