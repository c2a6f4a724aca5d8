//! Grammars: what an answer must match, followed token by token.
//!
//! A [`Vocabulary`] has the bytes of the target's tokens, a [`Constraint`] says which tokens may follow a text, as a
//! [`Mask`]. The crate `llguidance` does the parsing. Invariants: a mask depends on the answer's tokens alone, never on how
//! they were drafted, so that speculation changes no text; compiling and each mask have bounds in time and memory, so that
//! a hostile grammar ends in a sentence.

mod constraint;
mod error;
mod gbnf;
mod limits;
mod mask;
mod source;
#[cfg(test)]
mod tests;
mod vocabulary;

pub use constraint::Constraint;
pub use error::GrammarError;
pub use limits::MOST_BYTES;
pub use mask::Mask;
pub use source::check;
pub use vocabulary::Vocabulary;
