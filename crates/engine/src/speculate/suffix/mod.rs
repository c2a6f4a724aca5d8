//! The text so far as a suffix tree: where its end occurred before, and what followed there.
//!
//! An online suffix tree (Ukkonen, 1995), which is the dual of a suffix automaton: it takes one token after the other in
//! amortised constant time, and after each of them knows the longest end of the text that occurred before. Unlike an
//! automaton it gives every occurrence back and can be cut to any length exactly, because a leaf and the node made for it
//! are removed in the reverse order of their creation. No crate offers that: those of crates.io build from a whole text
//! (`suffix`, `sacapart`, `general-sam`) or cannot remove tokens.

mod cursor;
mod follow;
mod index;
mod tree;

#[cfg(test)]
mod tests;

pub use cursor::{Cursor, Next};
pub use tree::SuffixTree;
