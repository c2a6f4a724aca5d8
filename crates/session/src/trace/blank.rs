//! The file of a recording before its first event.
//!
//! Invariant: a file that will be replaced is not changed. With the first event a new file in the same folder takes its
//! name, so that hard links and readers of the old file keep its content. Two processes never write one recording: each
//! locks its file, and the second one gets an error. The lock is advisory, so readers need none.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use draftscope_host::file_access;

use super::error::RecordError;

/// A file without any events yet.
pub(super) struct Blank {
    file: File,
    path: PathBuf,
    /// Whether it was created now.
    is_new: bool,
    /// Removes a new file if a signal ends the process, as long as it is empty.
    #[cfg(unix)]
    _removed: Option<draftscope_host::fatal::EmptyFile>,
}

/// A file to write to.
pub(super) struct Begun {
    pub(super) file: File,
    /// The replaced file. It stays locked, so that a process that opened it earlier still gets an error.
    pub(super) replaced: Option<File>,
}

impl Blank {
    /// Creates the file, or opens an existing one with `force`, or if it is empty.
    pub(super) fn open(path: &Path, force: bool) -> Result<Self, RecordError> {
        // named before it is there, so that no signal comes in between
        #[cfg(unix)]
        let removed = (!path.exists()).then(|| draftscope_host::fatal::EmptyFile::created(path));
        let made = OpenOptions::new().write(true).create_new(true).open(path);
        let is_new = made.is_ok();
        let opened = match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && (force || is_empty(path)) => {
                file_access::overwrite(path)
            }
            made => made,
        };
        let file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => RecordError::Exists(path.to_owned()),
            _ => RecordError::Write { path: path.to_owned(), source: error },
        })?;
        if !lock(&file) {
            return Err(RecordError::Busy(path.to_owned()));
        }
        Ok(Self {
            file,
            path: path.to_owned(),
            is_new,
            #[cfg(unix)]
            _removed: removed.filter(|_| is_new),
        })
    }

    /// Whether its name asks for zstd compression.
    pub(super) fn is_packed(&self) -> bool {
        self.path.extension().is_some_and(|end| end == "zst")
    }

    /// Begins the recording: replaces an existing file.
    pub(super) fn begin(self) -> io::Result<Begun> {
        if self.is_new || !self.file.metadata()?.is_file() {
            return Ok(Begun { file: self.file, replaced: None });
        }
        match replace(&self.path, &self.file) {
            Ok(file) => Ok(Begun { file, replaced: Some(self.file) }),
            // no new file can be created in the folder
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.file.set_len(0)?;
                Ok(Begun { file: self.file, replaced: None })
            }
            Err(error) => Err(error),
        }
    }

    /// Ends without a recording: removes the file if it is new.
    pub(super) fn discard(self) -> io::Result<()> {
        if self.is_new { fs::remove_file(self.path) } else { Ok(()) }
    }
}

/// Whether this is a file without content, as a run leaves it that was killed before its first event.
fn is_empty(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|there| there.is_file() && there.len() == 0)
}

/// Replaces a file by an empty one with the same permissions. A link stays, and its target is replaced.
fn replace(path: &Path, old: &File) -> io::Result<File> {
    let path = path.canonicalize()?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let new = file_access::temporary_file_in(folder)?;
    new.as_file().set_permissions(old.metadata()?.permissions())?;
    lock(new.as_file());
    new.persist(path).map_err(|error| error.error)
}

/// Locks a file; false if another process holds the lock. True if the file system has no locks, and for pipes and
/// devices, which need none.
#[cfg(unix)]
fn lock(file: &File) -> bool {
    let is_file = file.metadata().is_ok_and(|there| there.is_file());
    !(is_file && matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock)))
}

/// On other systems a lock would keep readers out, too.
#[cfg(not(unix))]
fn lock(_: &File) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn write(blank: Blank, text: &[u8]) -> Begun {
        let mut begun = blank.begin().unwrap();
        begun.file.write_all(text).unwrap();
        begun
    }

    #[cfg(unix)]
    #[test]
    fn a_second_writer_is_refused_until_the_first_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        let is_busy = || matches!(Blank::open(&path, true), Err(RecordError::Busy(_)));
        for text in [b"first", b"again"] {
            let blank = Blank::open(&path, true).unwrap();
            assert!(is_busy(), "before the first event");
            let begun = write(blank, text);
            assert!(is_busy(), "and after it");
            drop(begun);
            assert_eq!(fs::read(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file remains");
    }

    #[test]
    fn what_a_killed_run_left_empty_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        File::create(&path).unwrap();
        drop(write(Blank::open(&path, false).unwrap(), b"events"));
        assert_eq!(fs::read(&path).unwrap(), b"events");
        assert!(matches!(Blank::open(&path, false), Err(RecordError::Exists(_))));
    }

    #[cfg(unix)]
    #[test]
    fn a_process_that_opened_the_old_file_is_refused_while_the_new_one_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        fs::write(&path, "old").unwrap();
        let old = File::open(&path).unwrap();
        let begun = write(Blank::open(&path, true).unwrap(), b"new");
        assert!(!lock(&old));
        drop(begun);
        assert!(lock(&old));
    }

    #[cfg(unix)]
    #[test]
    fn other_names_links_and_permissions_stay() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let [path, name, link] = ["a.jsonl", "name.jsonl", "link.jsonl"].map(|name| folder.path().join(name));
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        fs::hard_link(&path, &name).unwrap();
        symlink(&path, &link).unwrap();
        drop(write(Blank::open(&link, true).unwrap(), b"new"));
        assert!(link.is_symlink());
        assert_eq!((fs::read(&path).unwrap(), fs::read(&name).unwrap()), (b"new".to_vec(), b"old".to_vec()));
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o640);
        assert_ne!(path.metadata().unwrap().ino(), name.metadata().unwrap().ino());
    }
}
