//! Why a grammar is rejected, or fails while it constrains.

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
