//! Checks size and sha256 of a model file, and keeps the digest in a note next to the file, so that a start need
//! not read 100 MB again.
//!
//! Invariant: a note counts only while the file has the size and modification time that the note records, and it
//! describes exactly the file that was read. A missing, stale or damaged note only costs reading the file once.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use draftscope_host::file_access;

use super::known_model::KnownModel;

/// How a file differs from the one in the catalog.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Mismatch {
    /// Too short or too long.
    #[error("size is {got} bytes, expected {expected}")]
    Size {
        /// Bytes in the catalog.
        expected: u64,
        /// Bytes there are.
        got: u64,
    },
    /// More bytes came than expected.
    #[error("it is longer than the expected {expected} bytes")]
    TooLong {
        /// Bytes in the catalog.
        expected: u64,
    },
    /// Other contents.
    #[error("sha256 is {got}, expected {expected}")]
    Sha256 {
        /// Digest in the catalog.
        expected: String,
        /// Digest of what is there.
        got: String,
    },
}

impl Mismatch {
    /// Compares size, then digest, with the catalog.
    pub(super) fn find(model: &KnownModel, bytes: u64, sha256: &str) -> Result<(), Self> {
        Self::find_size(model, bytes)?;
        if sha256 == model.sha256 {
            return Ok(());
        }
        Err(Self::Sha256 { expected: model.sha256.to_owned(), got: sha256.to_owned() })
    }

    /// Compares the size alone.
    pub(super) fn find_size(model: &KnownModel, bytes: u64) -> Result<(), Self> {
        if bytes == model.bytes {
            return Ok(());
        }
        Err(Self::Size { expected: model.bytes, got: bytes })
    }
}

/// Size and modification time, which show whether a file has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    bytes: u64,
    modified_ns: u64,
}

/// The digest of a file, valid for its stamp.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    #[serde(flatten)]
    stamp: Stamp,
    sha256: String,
}

/// Longest note, in bytes.
const MAX_NOTE: u64 = 1 << 12;

/// The digest in the note of a file, if the note is valid.
pub(super) fn noted(file: &Path) -> Option<String> {
    let note: Note = serde_json::from_slice(&file_access::read_regular(&note_path(file), MAX_NOTE).ok()?).ok()?;
    (note.stamp == stamp(&fs::metadata(file).ok()?).ok()?).then_some(note.sha256)
}

/// Writes the note of a file that no other process changes. A failure is no error, because a note only saves time.
pub(super) fn note(file: &Path, sha256: &str) {
    if let Ok(stamp) = fs::metadata(file).and_then(|meta| stamp(&meta)) {
        write_note(file, stamp, sha256);
    }
}

fn write_note(file: &Path, stamp: Stamp, sha256: &str) {
    let note = Note { stamp, sha256: sha256.to_owned() };
    if let Ok(text) = serde_json::to_vec(&note) {
        let _ = fs::write(note_path(file), text);
    }
}

/// Path of the note of a file: a hidden file next to it.
pub(super) fn note_path(file: &Path) -> PathBuf {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    file.with_file_name(format!(".{name}.sha256.json"))
}

/// Reads the whole file for its digest.
pub(super) fn sha256_of(file: &Path) -> io::Result<String> {
    digest(&mut file_access::open_regular(file)?, &mut || {})
}

/// The same, and notes the digest unless the file was changed or replaced while it was read.
pub(super) fn sha256_noting(file: &Path) -> io::Result<String> {
    noting(file, &mut || {})
}

fn noting(file: &Path, read: &mut dyn FnMut()) -> io::Result<String> {
    let mut reader = file_access::open_regular(file)?;
    let before = stamp(&reader.metadata()?)?;
    let sha256 = digest(&mut reader, read)?;
    let after = [reader.metadata(), fs::metadata(file)];
    if after.into_iter().all(|meta| meta.and_then(|meta| stamp(&meta)).is_ok_and(|after| after == before)) {
        write_note(file, before, &sha256);
    }
    Ok(sha256)
}

/// The digest; `read` is called after each MiB.
fn digest(reader: &mut File, read: &mut dyn FnMut()) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(hex(&hasher.finalize())),
            n => hasher.update(&buffer[..n]),
        }
        read();
    }
}

/// Bytes as lower-case hex.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn stamp(meta: &fs::Metadata) -> io::Result<Stamp> {
    let since = meta.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Stamp { bytes: meta.len(), modified_ns: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX) })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn a_digest_is_that_of_the_standard() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("abc");
        fs::write(&file, "abc").unwrap();
        assert_eq!(sha256_of(&file).unwrap(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn a_digest_is_noted_only_for_the_file_that_was_read() {
        let dir = tempfile::tempdir().unwrap();
        let (file, other) = (dir.path().join("m.gguf"), dir.path().join("new"));
        fs::write(&file, "abc").unwrap();
        let abc = sha256_noting(&file).unwrap();
        assert_eq!(noted(&file).as_deref(), Some(&*abc));
        let text = fs::read_to_string(note_path(&file)).unwrap();
        assert!(text.starts_with(r#"{"bytes":3,"modified_ns":"#) && text.contains(&abc), "{text}");

        for replaces in [true, false] {
            fs::remove_file(note_path(&file)).unwrap();
            fs::write(&file, "abc").unwrap();
            let mut change = || {
                fs::write(&other, "xyz").unwrap();
                let later = SystemTime::now() + Duration::from_secs(9);
                File::options().write(true).open(&other).unwrap().set_modified(later).unwrap();
                if replaces {
                    fs::rename(&other, &file).unwrap();
                } else {
                    File::options().write(true).open(&file).unwrap().set_modified(later).unwrap();
                }
            };
            assert_eq!(noting(&file, &mut change).unwrap(), abc);
            assert_eq!(noted(&file), None, "replaced: {replaces}");
            note(&file, "cafe");
        }
    }

    #[test]
    fn a_note_counts_until_the_file_changes() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("m.gguf");
        fs::write(&file, "one").unwrap();
        assert_eq!(noted(&file), None);
        note(&file, "cafe");
        assert_eq!(noted(&file).as_deref(), Some("cafe"));

        let later = SystemTime::now() + Duration::from_secs(9);
        File::options().write(true).open(&file).unwrap().set_modified(later).unwrap();
        assert_eq!(noted(&file), None, "another modification time");

        note(&file, "cafe");
        fs::write(note_path(&file), "{ garbage").unwrap();
        assert_eq!(noted(&file), None, "a damaged note is no note");
    }
}
