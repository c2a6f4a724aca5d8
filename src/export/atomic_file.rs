//! Writes files and folders whole or not at all.
//!
//! Invariant: the output has a temporary name in the same folder until it is complete, and an error removes it. Until
//! then an existing file or folder of the final name stays. Devices and pipes cannot be replaced: they are written
//! directly. Only output of the same format is ever replaced.

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use draftscope_host::file_access;

use super::error::WriteError;

/// The output that a format writes to.
pub(super) type Out<'a> = &'a mut dyn Write;

/// Size of the write buffer, in bytes.
const BUFFER: usize = 1 << 18;

/// How often a folder of the same name is replaced, when several programs write it.
const TRIES: usize = 8;

/// How the name begins of a folder with one that is replaced: no temporary one, since it may hold the only copy.
const ASIDE: &str = ".draftscope-old-";

/// Name of a folder that is replaced, inside that one.
const OLD: &str = "old";

fn parent(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn refuse(path: &Path, force: bool) -> Result<(), WriteError> {
    if !force && path.symlink_metadata().is_ok() {
        return Err(io::Error::from(io::ErrorKind::AlreadyExists).into());
    }
    Ok(())
}

/// The target of a link, so that the link itself stays.
fn followed(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Writes a file.
pub(super) fn file(
    path: &Path,
    force: bool,
    write: impl FnOnce(Out<'_>) -> Result<(), WriteError>,
) -> Result<(), WriteError> {
    refuse(path, force)?;
    let is_packed = path.extension().is_some_and(|e| e == "zst");
    let path = &followed(path);
    // opening a dangling link creates its target
    if path.symlink_metadata().is_ok_and(|there| !there.is_file()) {
        let mut there = match path.exists() {
            true => file_access::overwrite(path)?,
            false => OpenOptions::new().write(true).create(true).truncate(true).open(path)?,
        };
        return fill(&mut there, is_packed, write);
    }
    let mut file = file_access::temporary_file_in(parent(path))?;
    if let Ok(there) = path.metadata() {
        file.as_file().set_permissions(there.permissions())?;
    }
    fill(file.as_file_mut(), is_packed, write)?;
    file.as_file().sync_all()?; // the name must not reach the disk before what it names
    let done = if force { file.persist(path) } else { file.persist_noclobber(path) };
    done.map(drop).map_err(|error| error.error.into())
}

fn fill(
    file: &mut fs::File,
    is_packed: bool,
    write: impl FnOnce(Out<'_>) -> Result<(), WriteError>,
) -> Result<(), WriteError> {
    let mut out = BufWriter::with_capacity(BUFFER, file);
    if is_packed {
        let mut packed = zstd::Encoder::new(&mut out, 0)?;
        write(&mut packed)?;
        packed.finish()?;
    } else {
        write(&mut out)?;
    }
    Ok(out.flush()?)
}

/// Writes a folder. An existing one is replaced only if `is_own` recognises all its files as output of this format.
pub(super) fn folder(
    path: &Path,
    force: bool,
    is_own: fn(&str) -> bool,
    write: impl FnOnce(&Path) -> Result<(), WriteError>,
) -> Result<(), WriteError> {
    refuse(path, force)?;
    let path = &followed(path);
    check_own(path, is_own)?;
    let folder = file_access::temporary_folder_in(parent(path))?;
    write(folder.path())?;
    let mut replaced = None; // kept until the new folder has its name
    for _ in 0..TRIES {
        match rename_new(folder.path(), path) {
            Ok(()) => {
                let _ = folder.keep(); // it has its final name now
                return Ok(());
            }
            Err(error) if force && error.kind() == io::ErrorKind::AlreadyExists => {
                check_own(path, is_own)?; // another program may have written there meanwhile
                let aside = tempfile::Builder::new().prefix(ASIDE).tempdir_in(parent(path))?;
                match fs::rename(path, aside.path().join(OLD)) {
                    Ok(()) => replaced = Some(aside),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => {
                if let Some(old) = replaced {
                    rename_new(&old.path().join(OLD), path)?;
                }
                return Err(error.into());
            }
        }
    }
    Err(WriteError::InTheWay("other programs write there at the same time".to_owned()))
}

/// Renames a folder; an error if the new name exists.
#[cfg(any(target_os = "linux", target_vendor = "apple"))]
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // this file system has no such call
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => rename_onto_nothing(from, to),
        renamed => Ok(renamed?),
    }
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    rename_onto_nothing(from, to)
}

/// Looks first. A folder with files that appears between the two calls is not replaced either: the system refuses that.
fn rename_onto_nothing(from: &Path, to: &Path) -> io::Result<()> {
    match to.symlink_metadata() {
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => fs::rename(from, to),
    }
}

/// Checks that a folder contains only files that this format writes.
fn check_own(path: &Path, is_own: fn(&str) -> bool) -> Result<(), WriteError> {
    let Ok(there) = path.symlink_metadata() else {
        return Ok(());
    };
    if !there.is_dir() {
        return Err(WriteError::InTheWay("it is not a folder, and this format writes one".to_owned()));
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        if !(entry.file_type()?.is_file() && name.to_str().is_some_and(is_own)) {
            let why = format!("it contains {}, which this format does not write", name.display());
            return Err(WriteError::InTheWay(why));
        }
    }
    Ok(())
}
