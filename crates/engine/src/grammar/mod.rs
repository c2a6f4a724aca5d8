//! Grammars: what an answer must match, followed token by token.
//!
//! A [`Vocabulary`] has the bytes of the target's tokens, a [`Constraint`] says which tokens may follow a text, as a
//! [`Mask`]. The crate `llguidance` does the parsing. Invariants: a mask depends on the answer's tokens alone, never on how
//! they were drafted, so that speculation changes no text; compiling and each mask have bounds in time and memory, so that
//! a hostile grammar ends in a sentence.

mod constraint;
mod gbnf;
mod limits;
mod mask;
mod source;
#[cfg(test)]
mod tests;
mod vocabulary;

pub use constraint::Constraint;
pub use mask::Mask;
pub use source::{MOST_BYTES, check};
pub use vocabulary::Vocabulary;

/// Why a grammar cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// The grammar is wrong, or needs more than the limits allow.
    #[error("the {noun} cannot be used: {why}")]
    Invalid {
        /// What it is.
        noun: &'static str,
        /// The cause.
        why: String,
    },
    /// No text matches.
    #[error("the {noun} allows no text at all; change it so that an answer exists")]
    AllowsNothing {
        /// What it is.
        noun: &'static str,
    },
    /// The text that an answer goes on from does not match.
    #[error("the answer cannot go on from here: its {noun} forbids the token {at} of the part that is kept")]
    Broken {
        /// What it is.
        noun: &'static str,
        /// Number of the token, from 1.
        at: usize,
    },
    /// The tokenizer lacks what grammars need.
    #[error("this model's tokenizer cannot be used with a grammar: {0}")]
    Vocabulary(String),
}
