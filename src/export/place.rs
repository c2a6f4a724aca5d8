//! Files and folders that appear whole or not at all.
//!
//! Invariant: until everything is written, what is written lies under a temporary name in the same
//! folder and goes away with any error; what stood under the wanted name before stays until then.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::Stop;

/// Where a format writes to.
pub(super) type Out<'a> = &'a mut dyn Write;

fn parent(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn refuse(path: &Path, force: bool) -> Result<(), Stop> {
    if !force && path.symlink_metadata().is_ok() {
        return Err(io::Error::from(io::ErrorKind::AlreadyExists).into());
    }
    Ok(())
}

/// Writes a file.
pub(super) fn file(path: &Path, force: bool, write: impl FnOnce(Out<'_>) -> Result<(), Stop>) -> Result<(), Stop> {
    refuse(path, force)?;
    let mut file = tempfile::Builder::new().prefix(".draftscope-").tempfile_in(parent(path))?;
    let mut out = BufWriter::with_capacity(1 << 18, file.as_file_mut());
    if path.extension().is_some_and(|e| e == "zst") {
        let mut packed = zstd::Encoder::new(&mut out, 0)?;
        write(&mut packed)?;
        packed.finish()?;
    } else {
        write(&mut out)?;
    }
    out.flush()?;
    drop(out);
    readable(file.path(), 0o644)?;
    let done = if force { file.persist(path) } else { file.persist_noclobber(path) };
    done.map(drop).map_err(|error| error.error.into())
}

/// Writes a folder.
pub(super) fn folder(path: &Path, force: bool, write: impl FnOnce(&Path) -> Result<(), Stop>) -> Result<(), Stop> {
    refuse(path, force)?;
    let folder = tempfile::Builder::new().prefix(".draftscope-").tempdir_in(parent(path))?;
    write(folder.path())?;
    readable(folder.path(), 0o755)?;
    let old = tempfile::Builder::new().prefix(".draftscope-").tempdir_in(parent(path))?;
    let had_one = path.symlink_metadata().is_ok();
    if had_one {
        std::fs::rename(path, old.path().join("old"))?;
    }
    if let Err(error) = std::fs::rename(folder.path(), path) {
        if had_one {
            std::fs::rename(old.path().join("old"), path)?;
        }
        return Err(error.into());
    }
    let _ = folder.keep(); // it has its name now
    Ok(())
}

/// Temporary files are the owner's alone; what comes of them is like any other file.
#[cfg(unix)]
fn readable(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

#[cfg(not(unix))]
fn readable(_path: &Path, _mode: u32) -> io::Result<()> {
    Ok(())
}
