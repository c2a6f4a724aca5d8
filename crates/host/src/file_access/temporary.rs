//! Temporary files and folders, beside what they become, and removing those of killed processes.
//!
//! Invariant: only what has a name that this program gives to temporary files, belongs to the same user, and was not changed
//! for a day is removed: a process that still writes a file changes it.

use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::path::Path;
use std::time::Duration;

use tempfile::{NamedTempFile, TempDir};

/// How temporary names begin. [`RANDOM`] letters and digits follow.
const PREFIX: &str = ".draftscope-";
const RANDOM: usize = 6;

/// Age from which no process uses a temporary file any more.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Most entries of a folder that are looked at.
const MAX_ENTRIES: usize = 1 << 14;

/// Permissions of an ordinary file and of an ordinary folder, which the umask limits.
const FILE_MODE: u32 = 0o666;
const FOLDER_MODE: u32 = 0o777;

/// Permissions of a file that only its user reads.
const PRIVATE_MODE: u32 = 0o600;

/// Makes a temporary file in this folder, with the permissions of an ordinary one. Those of killed processes are
/// removed first.
///
/// # Errors
/// When it cannot be created.
pub fn temporary_file_in(folder: &Path) -> io::Result<NamedTempFile> {
    temporary_in(folder, FILE_MODE).tempfile_in(folder)
}

/// The same for a file that only its user can read.
///
/// # Errors
/// When it cannot be created.
pub fn private_file_in(folder: &Path) -> io::Result<NamedTempFile> {
    temporary_in(folder, PRIVATE_MODE).tempfile_in(folder)
}

/// The same as [`temporary_file_in`] for a folder.
///
/// # Errors
/// When it cannot be created.
pub fn temporary_folder_in(folder: &Path) -> io::Result<TempDir> {
    temporary_in(folder, FOLDER_MODE).tempdir_in(folder)
}

fn temporary_in(folder: &Path, mode: u32) -> tempfile::Builder<'static, 'static> {
    remove_left_behind(folder);
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX).rand_bytes(RANDOM);
    set_mode(&mut builder, mode);
    builder
}

#[cfg(unix)]
fn set_mode(builder: &mut tempfile::Builder<'static, 'static>, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    builder.permissions(fs::Permissions::from_mode(mode));
}

#[cfg(not(unix))]
fn set_mode(_: &mut tempfile::Builder<'static, 'static>, _: u32) {}

fn remove_left_behind(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().take(MAX_ENTRIES).flatten();
    for entry in entries.filter(is_left_behind) {
        // what cannot be removed is in nobody's way
        let _ = match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => fs::remove_dir_all(entry.path()),
            false => fs::remove_file(entry.path()),
        };
    }
}

fn is_left_behind(entry: &DirEntry) -> bool {
    let name = entry.file_name();
    let random = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
    let is_named = random.is_some_and(|it| it.len() == RANDOM && it.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    // of a link, the link itself
    is_named && entry.metadata().is_ok_and(|there| is_own(&there) && is_old(&there))
}

fn is_old(there: &Metadata) -> bool {
    there.modified().is_ok_and(|changed| changed.elapsed().is_ok_and(|age| age > DAY))
}

#[cfg(unix)]
fn is_own(there: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (there.is_file() || there.is_dir()) && there.uid() == rustix::process::geteuid().as_raw()
}

#[cfg(not(unix))]
fn is_own(there: &Metadata) -> bool {
    there.is_file() || there.is_dir()
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::fs::{File, FileTimes};
    use std::time::SystemTime;

    use super::*;

    /// Sets when a file or folder was last changed.
    fn age(path: &Path, age: Duration) {
        let times = FileTimes::new().set_modified(SystemTime::now() - age);
        File::open(path).unwrap().set_times(times).unwrap();
    }

    #[test]
    fn what_a_killed_process_left_is_removed_after_a_day_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let files = [".draftscope-aB3dE6", ".draftscope-new001", ".draftscope-old-x1", ".draftscope-toolong", "notes"];
        for name in files {
            fs::write(path(name), "x").unwrap();
        }
        fs::create_dir(path(".draftscope-folder")).unwrap();
        fs::write(path(".draftscope-folder/1.svg"), "x").unwrap();
        fs::create_dir(path("kept")).unwrap();
        std::os::unix::fs::symlink(path("kept"), path(".draftscope-link00")).unwrap();
        for name in [files[0], files[2], files[3], files[4], ".draftscope-folder", "kept"] {
            age(&path(name), 2 * DAY);
        }
        age(&path(files[1]), DAY / 2);
        let new = temporary_file_in(folder.path()).unwrap();
        let own = new.path().file_name().unwrap().to_str().unwrap();
        let mut left: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut right = vec![own, files[1], files[2], files[3], files[4], ".draftscope-link00", "kept"];
        right.sort();
        assert_eq!(left, right);
        age(new.path(), 2 * DAY);
        let abandoned = new.keep().unwrap().1;
        drop(temporary_folder_in(folder.path()).unwrap());
        assert!(!abandoned.exists(), "the names that are made are those that are removed");
    }
}
