//! Ten statements on speculative decoding, judged before and after the lessons: `assets/quiz/statements.toml`.

use serde::{Deserialize, Serialize};

const STATEMENTS: &str = include_str!("../../assets/quiz/statements.toml");

draftscope_protocol::named_enum! {
    /// What can be said of a statement.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Truth {
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
pub struct Statement {
    /// Its name.
    pub id: String,
    /// As it was said.
    pub text: String,
    /// What exactly is to be judged, where the sentence leaves it open; else empty.
    #[serde(default)]
    pub judge: String,
    /// The right verdict.
    pub answer: Truth,
    /// The reason.
    pub why: String,
    /// A paper, or a file of the repository.
    pub source: String,
    /// Name of the lesson that treats it.
    pub lesson: String,
    /// That lesson's step, from 1.
    pub step: usize,
}

#[derive(Deserialize)]
struct Statements {
    statement: Vec<Statement>,
}

/// All statements.
#[must_use]
pub fn statements() -> Vec<Statement> {
    toml::from_str::<Statements>(STATEMENTS).map(|read| read.statement).unwrap_or_default()
}

/// How many of these answers are right.
pub(super) fn right(answers: &[Truth]) -> usize {
    statements().iter().zip(answers).filter(|(statement, answer)| statement.answer == **answer).count()
}
