//! Ten statements on speculative decoding, judged before and after the lessons: `assets/quiz/statements.toml`.

use serde::{Deserialize, Serialize};

const STATEMENTS: &str = include_str!("../../../assets/quiz/statements.toml");

crate::protocol::named_enum! {
    /// What can be said of a statement.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub(in crate::tui) enum Truth {
        /// It holds.
        True = "true",
        /// It does not.
        False = "false",
        /// It depends on what the reason says.
        Depends = "it depends",
    }
}

/// A statement.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::tui) struct Statement {
    pub(in crate::tui) id: String,
    /// As it was said.
    pub(in crate::tui) text: String,
    /// What exactly is to be judged, where the sentence leaves it open; else empty.
    #[serde(default)]
    pub(in crate::tui) judge: String,
    pub(in crate::tui) answer: Truth,
    /// The reason.
    pub(in crate::tui) why: String,
    /// A paper, or a file of the repository.
    pub(in crate::tui) source: String,
    /// Name of the lesson that treats it, and its step from 1.
    pub(in crate::tui) lesson: String,
    pub(in crate::tui) step: usize,
}

#[derive(Deserialize)]
struct Statements {
    statement: Vec<Statement>,
}

/// All statements.
pub(in crate::tui) fn statements() -> Vec<Statement> {
    toml::from_str::<Statements>(STATEMENTS).map(|read| read.statement).unwrap_or_default()
}

/// How many of these answers are right.
pub(in crate::tui) fn right(answers: &[Truth]) -> usize {
    statements().iter().zip(answers).filter(|(statement, answer)| statement.answer == **answer).count()
}
