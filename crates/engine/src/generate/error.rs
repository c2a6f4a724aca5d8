//! Why a dataset cannot be generated.

use std::path::PathBuf;

use draftscope_model::ModelError;

/// Why generation failed.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// The target failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A file cannot be read or written.
    #[error("{} cannot be used: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Reason.
        source: std::io::Error,
    },
    /// A line of the task file is not a task.
    #[error("line {line} of {} is not a task: {reason}; see `draftscope generate --help`", .path.display())]
    Task {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The folder contains shards of another run.
    #[error("{} contains shards of another run ({what} differs); choose another --out", .path.display())]
    OtherRun {
        /// The folder.
        path: PathBuf,
        /// What differs.
        what: &'static str,
    },
    /// The chat template cannot be split into a [`Frame`](super::frame::Frame).
    #[error("the model's chat template cannot be split at its messages; generation needs a template that can")]
    Template,
}

impl GenerateError {
    pub(super) fn file(path: &std::path::Path, source: std::io::Error) -> Self {
        Self::File { path: path.to_owned(), source }
    }
}
