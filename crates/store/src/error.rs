//! Errors of finding, fetching and removing model files.
//!
//! Invariant: each message names the cause and the next step. [`SourceError`] is why one source did
//! not deliver; [`StoreError`] is what the caller sees after all of them were tried.

use std::fmt::{self, Display};
use std::io;
use std::path::{Path, PathBuf};

use draftscope_http::HttpError;

use super::check::Mismatch;
use super::known_model::KNOWN;

/// A model file that cannot be found, fetched, checked or removed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A path was given and there is no readable file.
    #[error("cannot read the model file {}: {source}; check the path, or leave --model out for the default model", path.display())]
    Read {
        /// The path as given.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Neither a file nor a name.
    #[error(
        "there is no model file and no known model '{name}'; known models: {known} (`draftscope models list`); a repository of the Hugging Face Hub is named owner/name"
    )]
    Unknown {
        /// The requested name.
        name: String,
        /// The known names.
        known: String,
    },
    /// An address names no model.
    #[error("'{address}' cannot be used as a model: {why}")]
    Address {
        /// The address without its query.
        address: String,
        /// Why, and what can be used.
        why: String,
    },
    /// A folder has several models, or none.
    #[error("{} {why}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What it has, and the next step.
        why: String,
    },
    /// Nothing under this name in the cache.
    #[error("'{name}' is not in the cache at {}; `draftscope models list` shows what is", dir.display())]
    NotCached {
        /// The requested name.
        name: String,
        /// Where it was looked for.
        dir: PathBuf,
    },
    /// No source delivered the file.
    #[error("{0}")]
    NoSource(Box<Exhausted>),
    /// A repository of the hub could not be fetched.
    #[error("cannot get the repository '{name}' from the Hugging Face Hub: {why}")]
    Repo {
        /// `owner/name`.
        name: String,
        /// Why, and what to do.
        why: String,
    },
    /// A repository was requested from another source than the hub.
    #[error("'{name}' is a repository of the Hugging Face Hub, which pip does not have; leave --from out")]
    HubOnly {
        /// `owner/name`.
        name: String,
    },
    /// There is no home directory for the cache.
    #[error(
        "no place for model files: the home directory is unknown; set DRAFTSCOPE_CACHE to a directory, or use --model FILE"
    )]
    NoHome,
    /// The cache directory cannot be used.
    #[error("cannot {doing} {}: {source}; check permissions and free space, or set DRAFTSCOPE_CACHE to another directory", path.display())]
    Cache {
        /// "create", "lock" …
        doing: &'static str,
        /// Which file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl StoreError {
    /// For `map_err` on file operations in the cache.
    pub(super) fn cache(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Cache { doing, path, source }
    }
}

/// Everything that was tried for one model, and how to put its file in place by hand.
#[derive(Debug)]
pub struct Exhausted {
    /// The model's name.
    pub name: String,
    /// Each place in the order tried, and why it did not deliver.
    pub tried: Vec<Attempt>,
    /// Where a file put in place by hand belongs.
    pub place: PathBuf,
    /// Its digest.
    pub sha256: String,
}

/// One place that was tried.
#[derive(Debug)]
pub struct Attempt {
    /// Which place, as messages name it.
    pub place: String,
    /// Why it did not deliver.
    pub why: String,
}

impl Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the model '{}' could not be fetched from anywhere; tried:", self.name)?;
        for Attempt { place, why } in &self.tried {
            writeln!(f, "  {place}: {why}")?;
        }
        write!(
            f,
            "Go online and start again, use --model FILE, or copy the file (sha256 {}) to {}",
            self.sha256,
            self.place.display()
        )
    }
}

/// Why one source did not deliver.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    /// Not asked, because the user forbids it.
    #[error("not asked, because {0}")]
    Off(String),
    /// It cannot be reached, or is not installed.
    #[error("{0}")]
    Unreachable(String),
    /// It was reached and broke off or answered with an error.
    #[error("{0}")]
    Failed(String),
    /// A request failed.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// It was reached and does not have it; another try would not help.
    #[error("{0}")]
    Lacks(String),
    /// It delivered something else.
    #[error("refused what it delivered: {0}")]
    Refused(#[from] Mismatch),
    /// Its lock cannot be taken.
    #[error("cannot lock {}: {source}; check permissions and free space, or set HF_HUB_CACHE to another directory", path.display())]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What it delivered could not be written here.
    #[error("cannot write {}: {source}; is the disk full?", path.display())]
    Write {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

pub(super) fn unknown(name: &str) -> StoreError {
    let known: Vec<_> = KNOWN.iter().map(|model| model.name).collect();
    StoreError::Unknown { name: name.to_owned(), known: known.join(", ") }
}
