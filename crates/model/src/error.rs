//! Errors of loading and running models, with messages that say what to do.

use std::path::{Path, PathBuf};

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
    /// The file is damaged or of another kind.
    #[error("{} is damaged or incomplete: {what}; {}", path.display(), again(path))]
    Corrupt {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Parts of a split file are missing or do not belong together.
    #[error("{0}")]
    Split(String),
    /// Recognised, but not supported.
    #[error("{0}")]
    Unsupported(String),
    /// The model needs more memory than there is.
    #[error("{0}")]
    DoesNotFit(String),
    /// A required key is missing or has a wrong value.
    #[error("model metadata: {0}")]
    Metadata(String),
    /// A required tensor is missing.
    #[error("the model file has no tensor '{0}'; it is incomplete or of another architecture")]
    MissingTensor(String),
    /// A tensor has another shape than the metadata requires.
    #[error("tensor '{name}' has shape {got:?}, expected {expected:?}")]
    Shape {
        /// Which tensor.
        name: String,
        /// Shape in the file.
        got: Vec<usize>,
        /// Shape that the metadata requires.
        expected: Vec<usize>,
    },
    /// More positions than the cache has.
    #[error(
        "the context is full: {needed} positions are needed and the cache has {ctx_len}; shorten the prompt, or start with a larger --ctx if the model supports it"
    )]
    ContextFull {
        /// Positions needed.
        needed: usize,
        /// Positions of the cache.
        ctx_len: usize,
    },
    /// A prompt of many more tokens than the context has; not all of them were counted.
    #[error(
        "the context is full: the {bytes} bytes of the prompt take more than the {ctx_len} positions of the cache; shorten the prompt, or start with a larger --ctx if the model supports it"
    )]
    PromptTooLong {
        /// Bytes of the prompt, including the chat template's text.
        bytes: usize,
        /// Positions of the cache.
        ctx_len: usize,
    },
    /// A rewind to a length that the cache cannot return to.
    #[error("cannot rewind the cache to {len}: it has {have} positions and the checkpoint is at {since}")]
    Rewind {
        /// Requested length.
        len: usize,
        /// Current length.
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
    /// The network computed NaN or infinity.
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
    /// The model or module that `--draft-model` names cannot be used.
    #[error("--draft-model cannot be used: {0}; leave it out to decode without it")]
    DraftModel(Box<ModelError>),
    /// The device stopped working.
    #[error("{0}")]
    Device(String),
    /// An error of the tensor library.
    #[error("tensor operation failed: {}", sentence(.0))]
    Candle(#[from] candle_core::Error),
}

/// What the tensor library reports, without the stack that it adds where RUST_BACKTRACE is set.
fn sentence(error: &candle_core::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// What a library reports, made safe for a message: its first line, because the tensor library adds a stack to its errors
/// where RUST_BACKTRACE is set.
pub(crate) fn reported(error: &dyn std::fmt::Display) -> String {
    clean(error.to_string().lines().next().unwrap_or_default())
}

/// A place in the Hub's cache.
pub(crate) struct HubPlace {
    /// `owner/name`
    pub(crate) repo: String,
    commit: String,
    /// Path inside the repository; empty for the folder itself.
    file: PathBuf,
}

impl HubPlace {
    /// Parses `…/models--owner--name/snapshots/COMMIT/…`.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let mut parts = path.iter();
        let repo = parts.find_map(|part| part.to_str()?.strip_prefix("models--"))?.replacen("--", "/", 1);
        let commit = parts.next().filter(|part| *part == "snapshots").and_then(|_| parts.next())?;
        Some(Self { repo, commit: commit.to_str()?.to_owned(), file: parts.collect() })
    }
}

/// Name of a folder; in the Hub's cache, where folders are named by commits, the repository's name.
pub(crate) fn name_of(folder: &Path) -> String {
    let path = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let own = || path.file_name().map_or_else(|| "unnamed".to_owned(), |name| name.to_string_lossy().into_owned());
    HubPlace::of(&path).map_or_else(own, |place| place.repo)
}

/// How to replace a damaged file.
fn again(path: &Path) -> String {
    match HubPlace::of(path) {
        Some(HubPlace { repo, commit, file }) => {
            let file = file.to_str().filter(|file| file.ends_with(".gguf"));
            let file = file.map_or_else(String::new, |file| format!("/{file}"));
            format!(
                "download it again with `draftscope models pull --force {}`",
                format!("{repo}@{commit}{file}").replace(char::is_control, "")
            )
        }
        None => "get a complete copy of it (`draftscope models pull --force` downloads the default model)".to_owned(),
    }
}

/// A name from a file, made safe for a message: without control characters, at most 80 characters.
pub(crate) fn clean(name: &str) -> String {
    const MOST: usize = 80;
    let mut clean: String =
        name.chars().take(MOST).map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect();
    if name.chars().nth(MOST).is_some() {
        clean.push('…');
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_tensor_library_is_one_line() {
        let error = ModelError::from(candle_core::Error::Msg("no such shape\n   0: candle_core::bt\n".to_owned()));
        assert_eq!(error.to_string(), "tensor operation failed: no such shape");
        assert_eq!(reported(&"no pickle\n   0: candle_core::bt"), "no pickle");
    }

    #[test]
    fn the_error_of_a_damaged_file_names_the_command_that_replaces_it() {
        let says = |path: &str| ModelError::Corrupt { path: path.into(), what: "x".into() }.to_string();
        let hub = "/c/hub/models--owner--a--b/snapshots/0123abc";
        assert!(says(&format!("{hub}/m-1.safetensors")).ends_with("pull --force owner/a--b@0123abc`"));
        assert!(says(&format!("{hub}/q/m.gguf")).ends_with("pull --force owner/a--b@0123abc/q/m.gguf`"));
        assert!(
            says("/c/m.gguf")
                .ends_with("get a complete copy of it (`draftscope models pull --force` downloads the default model)")
        );
    }
}
