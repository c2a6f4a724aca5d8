//! Files of the quiz: its results in the user's folder for state, its certificate in the current folder.
//!
//! Invariant: a file is whole or as it was before. Where nothing can be kept the quiz works without.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use draftscope::host::file_access;
use draftscope::tui::QuizFiles;

/// Longest file of results that is read, in bytes: far more than fifty quizzes need.
const MOST: u64 = 1 << 18;

/// Certificates that one folder may have.
const CERTIFICATES: usize = 1000;

/// What the screen needs of them.
pub(crate) fn quiz_files() -> QuizFiles {
    QuizFiles {
        read: Rc::new(|| read(&results()?)),
        keep: Rc::new(|text| {
            let path = results().ok_or("the results are not kept: there is no folder for them")?;
            keep(&path, text).map_err(|error| format!("the results are not kept: {}: {error}", path.display()))
        }),
        write_certificate: Rc::new(|text| match certificate(Path::new("."), text) {
            Ok(path) => Ok(format!("certificate written: {}", path.display())),
            Err(error) => Err(format!("the certificate was not written: {error}")),
        }),
    }
}

/// The file of the results; none where there is no place for it.
fn results() -> Option<PathBuf> {
    super::files::state_file("quiz.toml")
}

fn read(path: &Path) -> Option<String> {
    file_access::read_regular_text(path, MOST).ok()
}

fn keep(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut file = file_access::private_file_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.persist(path)?;
    Ok(())
}

/// Writes a certificate under the first name that is free; an existing one stays.
fn certificate(folder: &Path, text: &str) -> io::Result<PathBuf> {
    let mut file = file_access::private_file_in(folder)?;
    file.write_all(text.as_bytes())?;
    for number in 1..=CERTIFICATES {
        let path = folder.join(format!("draftscope-certificate-{number}.txt"));
        match file.persist_noclobber(&path) {
            Ok(_) => return Ok(path),
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => file = error.file,
            Err(error) => return Err(error.error),
        }
    }
    Err(io::Error::from(io::ErrorKind::AlreadyExists))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_replaced_and_certificates_never() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new").join("quiz.toml");
        assert_eq!(read(&path), None);
        keep(&path, "a").unwrap();
        keep(&path, "b").unwrap();
        assert_eq!(read(&path).as_deref(), Some("b"));
        let first = certificate(folder.path(), "one").unwrap();
        let second = certificate(folder.path(), "two").unwrap();
        assert_ne!(first, second);
        assert_eq!((read(&first).as_deref(), read(&second).as_deref()), (Some("one"), Some("two")));
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 3, "no temporary file is left");
    }
}
