//! Files and folders that appear whole or not at all.
//!
//! Invariant: until everything is written, what is written lies under a temporary name in the same
//! folder and goes away with any error; what stood under the wanted name before stays until then. Only
//! devices and pipes, which cannot be replaced, take what is written as it comes. Nothing is removed
//! but what the same format made before.

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::Stop;

/// Where a format writes to.
pub(super) type Out<'a> = &'a mut dyn Write;

/// Bytes that are gathered before they are written.
const BUFFER: usize = 1 << 18;

fn parent(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn refuse(path: &Path, force: bool) -> Result<(), Stop> {
    if !force && path.symlink_metadata().is_ok() {
        return Err(io::Error::from(io::ErrorKind::AlreadyExists).into());
    }
    Ok(())
}

/// What a link leads to, so that the link itself stays.
fn followed(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Writes a file.
pub(super) fn file(path: &Path, force: bool, write: impl FnOnce(Out<'_>) -> Result<(), Stop>) -> Result<(), Stop> {
    refuse(path, force)?;
    let is_packed = path.extension().is_some_and(|e| e == "zst");
    let path = &followed(path);
    // a link that leads nowhere makes its target when it is opened
    if path.symlink_metadata().is_ok_and(|there| !there.is_file()) {
        let mut there = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
        return fill(&mut there, is_packed, write);
    }
    let mut file = like_others(0o666).tempfile_in(parent(path))?;
    if let Ok(there) = path.metadata() {
        file.as_file().set_permissions(there.permissions())?;
    }
    fill(file.as_file_mut(), is_packed, write)?;
    file.as_file().sync_all()?; // the name must not reach the disk before what it names
    let done = if force { file.persist(path) } else { file.persist_noclobber(path) };
    done.map(drop).map_err(|error| error.error.into())
}

fn fill(file: &mut fs::File, is_packed: bool, write: impl FnOnce(Out<'_>) -> Result<(), Stop>) -> Result<(), Stop> {
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

/// Writes a folder. One that is there is replaced only if it holds nothing but files of which `is_own`
/// says that this format makes them.
pub(super) fn folder(
    path: &Path,
    force: bool,
    is_own: fn(&str) -> bool,
    write: impl FnOnce(&Path) -> Result<(), Stop>,
) -> Result<(), Stop> {
    refuse(path, force)?;
    let path = &followed(path);
    spare(path, is_own)?;
    let folder = like_others(0o777).tempdir_in(parent(path))?;
    write(folder.path())?;
    let old = tempfile::Builder::new().prefix(".draftscope-").tempdir_in(parent(path))?;
    let had_one = path.symlink_metadata().is_ok();
    if had_one {
        spare(path, is_own)?; // somebody may have put something there meanwhile
        fs::rename(path, old.path().join("old"))?;
    }
    if let Err(error) = fs::rename(folder.path(), path) {
        if had_one {
            fs::rename(old.path().join("old"), path)?;
        }
        return Err(error.into());
    }
    let _ = folder.keep(); // it has its name now
    Ok(())
}

/// Refuses to replace what this format did not make.
fn spare(path: &Path, is_own: fn(&str) -> bool) -> Result<(), Stop> {
    let Ok(there) = path.symlink_metadata() else {
        return Ok(());
    };
    if !there.is_dir() {
        return Err(Stop::InTheWay("it is no folder, and this format makes one".to_owned()));
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        if !(entry.file_type()?.is_file() && name.to_str().is_some_and(is_own)) {
            return Err(Stop::InTheWay(format!("it holds {}, which no such export makes", name.display())));
        }
    }
    Ok(())
}

/// Temporary files are the owner's alone; what comes of these is like any other file, as the umask says.
#[cfg(unix)]
fn like_others(mode: u32) -> tempfile::Builder<'static, 'static> {
    use std::os::unix::fs::PermissionsExt;
    let mut builder = tempfile::Builder::new();
    builder.prefix(".draftscope-").permissions(fs::Permissions::from_mode(mode));
    builder
}

#[cfg(not(unix))]
fn like_others(_mode: u32) -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".draftscope-");
    builder
}
