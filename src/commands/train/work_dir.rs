//! The note of a work folder, which says what it was begun with, and its lock.
//!
//! Invariant: finished steps belong to the model and the sizes in the folder's note; one process at a time works there.

use std::fs::{File, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use draftscope::cli::TrainArgs;
use draftscope::host::file_access;
use draftscope::model::files::ModelFiles;
use serde::{Deserialize, Serialize};

/// Name of the note.
const NOTE: &str = "begun.json";

/// Name of the run under the working folder.
pub(super) const RUN: &str = "module";

/// The file that exists once training has begun, whose schedule depends on the number of tokens.
fn checkpoint(work: &Path) -> PathBuf {
    work.join("runs").join(RUN).join("state.pt")
}

/// Locks the folder for this process until the file is closed.
pub(super) fn lock(work: &Path) -> Result<File> {
    let file = File::create(work.join("lock")).with_context(|| format!("cannot write to {}", work.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            bail!("another draftscope train is working in {}; wait for it", work.display())
        }
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("cannot lock {}", work.display())),
    }
}

/// What all steps depend on.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WorkNote {
    /// The model's own name.
    model: String,
    /// Length of its file in bytes, which distinguishes its quantisations.
    model_bytes: u64,
    conversations: u32,
    tokens: u64,
}

impl WorkNote {
    pub(super) fn of(args: &TrainArgs, source: &ModelFiles, file: &Path) -> Result<Self> {
        let model_bytes = file.metadata().with_context(|| format!("cannot read {}", file.display()))?.len();
        let model = source.own_name().map_or_else(|| source.name(), str::to_owned);
        Ok(Self { model, model_bytes, conversations: args.conversations, tokens: args.tokens })
    }

    /// Writes the note; one that is there already must agree. The tokens to train on may change until training begins.
    pub(super) fn claim(&self, work: &Path) -> Result<()> {
        let note = work.join(NOTE);
        if note.exists() {
            let text =
                file_access::read_regular(&note, 1 << 16).with_context(|| format!("cannot read {}", note.display()))?;
            let before: Self =
                serde_json::from_slice(&text).with_context(|| format!("{} is damaged; delete it", note.display()))?;
            self.check(&before, work)?;
        }
        let mut unfinished = file_access::private_file_in(work)?;
        serde_json::to_writer_pretty(&mut unfinished, self)?;
        unfinished.flush()?;
        unfinished.persist(&note).with_context(|| format!("cannot write {}", note.display()))?;
        Ok(())
    }

    fn check(&self, before: &Self, work: &Path) -> Result<()> {
        let elsewhere = format!("continue with that, or choose another --work than {}", work.display());
        let same_model = (&self.model, self.model_bytes) == (&before.model, before.model_bytes);
        let name = draftscope::session::text::printable(&before.model);
        ensure!(
            same_model,
            "this work was begun for another model, {name} of {} bytes; {elsewhere}",
            before.model_bytes
        );
        let (now, then) = (self.conversations, before.conversations);
        ensure!(now == then, "this work was begun with --conversations {then}; {elsewhere}");
        let may_change = !checkpoint(work).exists();
        ensure!(
            may_change || self.tokens == before.tokens,
            "this training was begun with --tokens {}; {elsewhere}",
            before.tokens
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note() -> WorkNote {
        WorkNote { model: "a".into(), model_bytes: 5, conversations: 100, tokens: 1000 }
    }

    #[test]
    fn work_continues_only_with_what_it_was_begun_with() {
        let work = tempfile::tempdir().unwrap();
        note().claim(work.path()).unwrap();
        note().claim(work.path()).unwrap();
        let error = |other: WorkNote| other.claim(work.path()).unwrap_err().to_string();
        assert!(error(WorkNote { model_bytes: 6, ..note() }).contains("another model, a of 5 bytes"));
        assert!(error(WorkNote { conversations: 200, ..note() }).contains("--conversations 100"));
        WorkNote { tokens: 2000, ..note() }.claim(work.path()).unwrap(); // nothing is trained yet
        let checkpoint = checkpoint(work.path());
        std::fs::create_dir_all(checkpoint.parent().unwrap()).unwrap();
        std::fs::write(checkpoint, "").unwrap();
        WorkNote { tokens: 2000, ..note() }.claim(work.path()).unwrap();
        assert!(error(note()).contains("--tokens 2000"));
        std::fs::write(work.path().join(NOTE), "{").unwrap();
        assert!(error(note()).contains("is damaged"));
    }

    #[test]
    fn one_process_at_a_time_works_in_a_folder() {
        let work = tempfile::tempdir().unwrap();
        let first = lock(work.path()).unwrap();
        assert!(lock(work.path()).unwrap_err().to_string().contains("another draftscope train"));
        drop(first);
        lock(work.path()).unwrap();
    }
}
