//! The memory of measured costs: one small file per key in the cache directory.
//!
//! Invariant: a file is complete (it gets its name by renaming) and contains its key. A file that is damaged,
//! unreadable or of another key counts as absent, and a failed write is ignored.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use draftscope::engine::{CostKey, CostMemory};
use draftscope::host::file_access;
use draftscope::protocol::Costs;
use draftscope::store::Store;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Largest file that is read, in bytes: far more than costs take.
const MAX_BYTES: u64 = 64 << 10;

/// The user's memory; without a cache directory nothing is remembered.
pub(super) fn memory() -> Arc<dyn CostMemory> {
    let dir = Store::from_env().cache().dir().parent().map(|dir| dir.join("costs"));
    Arc::new(Folder(dir))
}

struct Folder(Option<PathBuf>);

#[derive(Serialize, Deserialize)]
struct Entry {
    key: CostKey,
    costs: Costs,
}

impl Folder {
    fn file(&self, key: &CostKey) -> Option<PathBuf> {
        let json = serde_json::to_vec(key).ok()?;
        let name: String = Sha256::digest(json).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Some(self.0.as_ref()?.join(format!("{name}.json")))
    }
}

impl CostMemory for Folder {
    fn recall(&self, key: &CostKey) -> Option<Costs> {
        let bytes = file_access::read_regular(&self.file(key)?, MAX_BYTES).ok()?;
        let entry: Entry = serde_json::from_slice(&bytes).ok()?;
        (entry.key == *key && entry.costs.is_usable()).then_some(entry.costs)
    }

    fn remember(&self, key: &CostKey, costs: &Costs) {
        if let Some(file) = self.file(key) {
            let _ = write(&file, &Entry { key: key.clone(), costs: costs.clone() });
        }
    }
}

/// Writes a small file completely, or not at all.
pub(super) fn write(file: &Path, entry: &impl Serialize) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut unfinished = file_access::private_file_in(folder)?;
    serde_json::to_writer_pretty(&mut unfinished, entry)?;
    unfinished.flush()?;
    unfinished.persist(file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(threads: u32) -> CostKey {
        CostKey {
            program: "draftscope 1".into(),
            model: "a.gguf abc".into(),
            weight_bytes: 5,
            drafter: "mtp x".into(),
            device: "cpu".into(),
            backend: "native".into(),
            dtype: "q4_1".into(),
            threads,
        }
    }

    #[test]
    fn costs_are_remembered_by_key_and_damage_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let memory = Folder(Some(folder.path().join("costs")));
        let costs = Costs {
            verify_us: vec![100.0, 110.0],
            draft_us: 9.5,
            draft_pass_us: 0.0,
            settle_us: 1.0,
            overhead_us: 2.0,
        };
        assert_eq!(memory.recall(&key(2)), None);
        memory.remember(&key(2), &costs);
        assert_eq!(memory.recall(&key(2)), Some(costs));
        assert_eq!(memory.recall(&key(3)), None, "another thread count is another machine");
        let file = memory.file(&key(2)).unwrap();
        assert_eq!(std::fs::read_dir(folder.path().join("costs")).unwrap().count(), 1, "nothing unfinished stays");
        for damage in ["", "{", "[1,2]", "\u{0}\u{ff}"] {
            std::fs::write(&file, damage).unwrap();
            assert_eq!(memory.recall(&key(2)), None);
        }
        let zero = Costs { verify_us: vec![0.0], ..Costs::default() };
        memory.remember(&key(2), &zero);
        assert_eq!(memory.recall(&key(2)), None, "useless numbers are not used");
        Folder(None).remember(&key(2), &zero);
        assert_eq!(Folder(None).recall(&key(2)), None);
    }
}
