//! Why an export fails.

use std::io;
use std::path::{Path, PathBuf};

use draftscope_session::trace::TraceError;

/// Why an export failed. No part of it remains on disk.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// A file or folder of this name exists.
    #[error("{} exists already; choose another name or add --force to replace it", .0.display())]
    Exists(PathBuf),
    /// The output cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The output.
        path: PathBuf,
        /// Reason.
        source: io::Error,
    },
    /// The recording cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The existing file or folder was not written by this program; it stays unchanged.
    #[error("{} is not replaced, because {why}; choose another name with --out", path.display())]
    InTheWay {
        /// The file or folder.
        path: PathBuf,
        /// Reason.
        why: String,
    },
    /// A folder cannot be written to standard output.
    #[error("this format makes a folder, and only a file can go to standard output; name a folder with --out")]
    Folder,
    /// The recording contains nothing that the format shows.
    #[error("the recording contains no {0}, so there is nothing to export")]
    Nothing(&'static str),
    /// The format needs a feature that this program was built without.
    #[error("this program was built without {0}; build it with `cargo install --path . --features {0}`")]
    NotBuilt(&'static str),
}

/// Why writing failed, before the path is added: see [`ExportError`].
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("{0}")]
    InTheWay(String),
    #[error("nothing")]
    Nothing(&'static str),
}

impl WriteError {
    pub(super) fn at(self, to: &Path) -> ExportError {
        match self {
            Self::Io(source) if source.kind() == io::ErrorKind::AlreadyExists => ExportError::Exists(to.to_owned()),
            Self::Io(source) => ExportError::Write { path: to.to_owned(), source },
            Self::Trace(error) => ExportError::Trace(error),
            Self::InTheWay(why) => ExportError::InTheWay { path: to.to_owned(), why },
            Self::Nothing(what) => ExportError::Nothing(what),
        }
    }
}
