//! Batch generation: a target's own answers to many prompts, with the hidden states behind them.
//!
//! This is what a draft module learns from, made with the very arithmetic that inference uses. Up to
//! sixteen conversations share a pass over the weights; when one ends, the next task takes its slot.
//! Invariant: what a task gives depends on its line and on the model alone, not on what ran beside
//! it, so shards may be made in any order, by several processes, and again. Training is done elsewhere.

mod frame;
mod run;
mod sequence;
mod shard;
mod task;

pub use frame::Frame;
pub use run::{Generator, Part, Progress};
pub use sequence::Role;
pub use shard::{FORMAT_VERSION, Plan};
pub use task::{Task, TaskFile, UserTurn};

use std::path::PathBuf;

use crate::model::ModelError;

/// Why generation stopped.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// From the target.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A file that cannot be read or written.
    #[error("{} cannot be used: {source}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line of the task file that is no task.
    #[error("line {line} of {} is no task: {reason}; see `draftscope generate --help`", .path.display())]
    Task {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// The folder holds shards of something else.
    #[error("{} holds shards of another run ({what} differs); choose another --out", .path.display())]
    OtherRun {
        /// The folder's plan.
        path: PathBuf,
        /// What differs.
        what: &'static str,
    },
    /// Nothing can be written into this template.
    #[error("the model's chat template cannot be cut at its messages; generation needs one that can")]
    Template,
}

impl GenerateError {
    fn file(path: &std::path::Path, source: std::io::Error) -> Self {
        Self::File { path: path.to_owned(), source }
    }
}
