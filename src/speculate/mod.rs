//! Speculative decoding, one round at a time: draft, verify, commit, roll back.
//!
//! Invariants between rounds: the target's cache holds one position less than is committed (the
//! anchor is not in it yet); the drafter has been shown exactly the committed tokens. Plain decoding
//! is k = 0, not another code path. Threads, channels, the terminal and JSON are unknown here; what
//! happens is told through [`decoder::Emit`].

mod argmax;
pub mod decoder;
pub mod distribution;
pub mod drafter;
pub mod policy;
pub mod random;
pub mod report;
pub mod sampler;
pub mod verify;

use crate::model::ModelError;
use crate::protocol::TokenId;

/// A round that could not be finished.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// From the target or the drafter's model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// There is nothing to continue.
    #[error("the prompt is empty; type some text")]
    EmptyPrompt,
    /// The prompt was given up before all of it was read.
    #[error("stopped before the prompt was read")]
    Stopped,
    /// A token that the target does not have.
    #[error("cannot go on from token {token}: this target has {vocab} tokens; choose a turn of this run")]
    UnknownToken {
        /// Which.
        token: TokenId,
        /// How many it has.
        vocab: u32,
    },
}
