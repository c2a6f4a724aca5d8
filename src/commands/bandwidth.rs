//! The rate at which this machine reads memory, measured once and remembered in the cache directory.
//!
//! Invariant: a file is complete (it gets its name by renaming). One that is damaged, of another machine or older than
//! [`FRESH_SECONDS`] counts as absent, and a failed write is ignored.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use draftscope::engine::measure::memory_bandwidth;
use draftscope::host::file_access;
use draftscope::model::memory;
use draftscope::store::Store;
use serde::{Deserialize, Serialize};

/// How long a measurement counts: a month.
const FRESH_SECONDS: u64 = 30 * 24 * 3600;

/// Largest file that is read, in bytes.
const MAX_BYTES: u64 = 4 << 10;

/// Plausible rates, in bytes per second; others are not used.
const PLAUSIBLE: std::ops::Range<f64> = 1e8..1e14;

/// A measured rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bandwidth {
    /// Bytes per second, on all cores.
    pub(super) bytes_per_second: f64,
    /// Whether it was measured in an earlier run.
    pub(super) is_remembered: bool,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    machine: Machine,
    bytes_per_second: f64,
    measured_unix_seconds: u64,
}

/// What a rate belongs to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Machine {
    threads: usize,
    memory: Option<u64>,
}

impl Machine {
    fn this() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { threads, memory: memory::installed() }
    }
}

/// The rate of this machine: remembered, or measured now.
pub(super) fn of_this_machine(store: &Store) -> Bandwidth {
    let file = store.cache().dir().parent().map(|dir| dir.join("costs").join("bandwidth.json"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    remembered_or(file, &Machine::this(), now, memory_bandwidth)
}

fn remembered_or(file: Option<PathBuf>, machine: &Machine, now: u64, measure: impl FnOnce() -> f64) -> Bandwidth {
    let recalled = file.as_deref().and_then(|file| recall(file, machine, now));
    if let Some(bytes_per_second) = recalled {
        return Bandwidth { bytes_per_second, is_remembered: true };
    }
    let bytes_per_second = measure();
    if let Some(file) = file {
        let entry = Entry { machine: machine.clone(), bytes_per_second, measured_unix_seconds: now };
        let _ = super::costs::write(&file, &entry); // it is measured again next time
    }
    Bandwidth { bytes_per_second, is_remembered: false }
}

fn recall(file: &Path, machine: &Machine, now: u64) -> Option<f64> {
    let bytes = file_access::read_regular(file, MAX_BYTES).ok()?;
    let entry: Entry = serde_json::from_slice(&bytes).ok()?;
    let age = now.checked_sub(entry.measured_unix_seconds)?;
    let counts = entry.machine == *machine && age < FRESH_SECONDS && PLAUSIBLE.contains(&entry.bytes_per_second);
    counts.then_some(entry.bytes_per_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_measured_once_and_again_on_another_machine_or_after_a_month() {
        let folder = tempfile::tempdir().unwrap();
        let file = || Some(folder.path().join("costs").join("bandwidth.json"));
        let machine = Machine { threads: 4, memory: Some(1 << 34) };
        let first = remembered_or(file(), &machine, 1000, || 20e9);
        assert_eq!(first, Bandwidth { bytes_per_second: 20e9, is_remembered: false });
        let never = || -> f64 { panic!("measured again") };
        let again = remembered_or(file(), &machine, 2000, never);
        assert_eq!(again, Bandwidth { bytes_per_second: 20e9, is_remembered: true });
        let other = Machine { threads: 8, memory: machine.memory };
        assert!(!remembered_or(file(), &other, 2000, || 30e9).is_remembered);
        assert_eq!(remembered_or(file(), &other, 2000 + FRESH_SECONDS, || 31e9).bytes_per_second, 31e9);
        let long = " ".repeat(MAX_BYTES as usize + 1);
        for damage in ["", "{", "[1]", "\u{0}", &long] {
            std::fs::write(file().unwrap(), damage).unwrap();
            assert!(!remembered_or(file(), &machine, 3000, || 20e9).is_remembered);
        }
        remembered_or(file(), &machine, 1000, || f64::INFINITY);
        #[cfg(unix)]
        {
            let pipe = folder.path().join("pipe");
            assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
            assert_eq!(recall(&pipe, &machine, 1000), None, "a pipe is not waited for");
        }
        assert_eq!(remembered_or(None, &machine, 1000, || 5e9).bytes_per_second, 5e9);
    }
}
