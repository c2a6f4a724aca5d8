//! Speculative decoding, one round at a time: draft, verify, commit, roll back.
//!
//! Invariants between rounds: the target's cache contains one position less than the committed tokens (the anchor is
//! not in it yet), and the drafter has observed exactly the committed tokens. Plain decoding is k = 0, not another code
//! path. This module uses no threads, channels, terminal or JSON; it reports events through [`decoder::Emit`].

pub mod decoder;
pub mod drafter;
pub mod report;
#[cfg(test)]
mod sampled_rules_test;
pub mod sampler;
pub mod suffix;

use crate::grammar::GrammarError;
use draftscope_model::ModelError;
use draftscope_protocol::TokenId;

/// Why a prompt or a round failed.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// The target or the drafter's model failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The grammar cannot be used, or the answer does not match it.
    #[error(transparent)]
    Grammar(#[from] GrammarError),
    /// The prompt has no tokens.
    #[error("the prompt is empty; type some text")]
    EmptyPrompt,
    /// The caller stopped the prefill.
    #[error("stopped before the prompt was read")]
    Stopped,
    /// A token outside the target's vocabulary.
    #[error("cannot continue from token {token}: this target has {vocab} tokens; choose a turn of this run")]
    UnknownToken {
        /// The token.
        token: TokenId,
        /// Size of the vocabulary.
        vocab: u32,
    },
}
