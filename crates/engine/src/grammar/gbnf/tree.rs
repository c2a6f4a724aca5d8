//! The lexemes of a rule, and how they follow each other.

/// A part of a rule that is not regular. Lexemes and tokens are leaves, numbered over all rules.
pub(super) enum Tree {
    Lexeme { lexeme: usize, leaf: usize },
    Rule(usize),
    Token { token: String, leaf: usize },
    Seq(Vec<Tree>),
    Alt(Vec<Tree>),
    Repeat(Box<Tree>, u32, Option<u32>),
}
