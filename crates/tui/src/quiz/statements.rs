//! Ten statements on speculative decoding, judged before and after the lessons: `assets/quiz/statements.toml`.

use serde::{Deserialize, Serialize};

const STATEMENTS: &str = include_str!("../../assets/quiz/statements.toml");

draftscope_protocol::named_enum! {
    /// What can be said of a statement.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub(crate) enum Truth {
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
pub(crate) struct Statement {
    pub(crate) id: String,
    /// As it was said.
    pub(crate) text: String,
    /// What exactly is to be judged, where the sentence leaves it open; else empty.
    #[serde(default)]
    pub(crate) judge: String,
    pub(crate) answer: Truth,
    /// The reason.
    pub(crate) why: String,
    /// A paper, or a file of the repository.
    pub(crate) source: String,
    /// Name of the lesson that treats it, and its step from 1.
    pub(crate) lesson: String,
    pub(crate) step: usize,
}

#[derive(Deserialize)]
struct Statements {
    statement: Vec<Statement>,
}

/// All statements.
pub(crate) fn statements() -> Vec<Statement> {
    toml::from_str::<Statements>(STATEMENTS).map(|read| read.statement).unwrap_or_default()
}

/// How many of these answers are right.
pub(crate) fn right(answers: &[Truth]) -> usize {
    statements().iter().zip(answers).filter(|(statement, answer)| statement.answer == **answer).count()
}
