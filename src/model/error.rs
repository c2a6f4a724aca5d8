//! What can go wrong while a model is loaded or run, in words a user can act on.

use std::path::PathBuf;

/// A model that cannot be loaded or run.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The file cannot be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is damaged or not of the kind it should be.
    #[error("{} is damaged or incomplete: {what}; fetch it again with `draftscope models pull --force`", path.display())]
    Corrupt {
        /// Which file.
        path: PathBuf,
        /// What does not fit.
        what: String,
    },
    /// Recognised, but not something this program runs.
    #[error("{0}")]
    Unsupported(String),
    /// A key that must be there is not, or holds something else.
    #[error("model metadata: {0}")]
    Metadata(String),
    /// A tensor that must be there is not.
    #[error("the model file has no tensor '{0}'; it is incomplete or of another architecture")]
    MissingTensor(String),
    /// A tensor of another shape than the metadata says.
    #[error("tensor '{name}' has shape {got:?}, expected {expected:?}")]
    Shape {
        /// Which tensor.
        name: String,
        /// Shape in the file.
        got: Vec<usize>,
        /// Shape that the metadata asks for.
        expected: Vec<usize>,
    },
    /// More positions than the cache holds.
    #[error(
        "the context is full: {needed} positions are needed and the cache holds {ctx_len}; start with a larger --ctx or a shorter prompt"
    )]
    ContextFull {
        /// Positions needed.
        needed: usize,
        /// Positions there are.
        ctx_len: usize,
    },
    /// A rewind to where the cache cannot go.
    #[error("cannot rewind the cache to {len}: it holds {have} positions and the checkpoint is at {since}")]
    Rewind {
        /// Asked length.
        len: usize,
        /// Length now.
        have: usize,
        /// Length at the checkpoint.
        since: usize,
    },
    /// A token outside the vocabulary.
    #[error("token {token} is outside the vocabulary of {vocab}")]
    Vocabulary {
        /// The token.
        token: u32,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// The network computed something that is no number.
    #[error(
        "the model computed values that are not numbers at position {position}; its weights are damaged or the dtype overflows"
    )]
    NotFinite {
        /// Position in the context.
        position: usize,
    },
    /// The tokenizer cannot be built or used.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// The chat template cannot be rendered.
    #[error("chat template: {0}")]
    Template(String),
    /// From the tensor library.
    #[error("tensor operation failed: {0}")]
    Candle(#[from] candle_core::Error),
}

/// A name out of a file, fit for a message: no control characters, not endless.
pub(super) fn clean(name: &str) -> String {
    const MOST: usize = 80;
    let mut clean: String =
        name.chars().take(MOST).map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect();
    if name.chars().nth(MOST).is_some() {
        clean.push('…');
    }
    clean
}
