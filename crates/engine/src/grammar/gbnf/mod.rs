//! GBNF, the grammars of llama.cpp, as Lark for `llguidance`.
//!
//! In GBNF a text is one sequence of characters, however it is read; `llguidance` reads lexemes, each as long as possible.
//! So what a rule can match without recursion becomes a lexeme only where that makes no difference, and is read character by
//! character elsewhere. Invariant: the converted grammar matches exactly the texts of the original one. Left recursion,
//! which llama.cpp rejects, needs no rule of its own. Every step has a limit, since a grammar comes from anywhere.

mod automaton;
mod char_set;
mod lexemes;
mod parse;
mod places;
mod regular;
#[cfg(test)]
mod tests;
mod tree;
mod write;

use parse::TOO_LARGE;

/// Whether a text has a rule in the form of GBNF: a name at the beginning of a line, then `::=`.
pub(super) fn is_gbnf(text: &str) -> bool {
    text.lines().any(|line| {
        let name = line.trim_start().split_once("::=").map(|(name, _)| name.trim_end());
        name.is_some_and(|name| !name.is_empty() && name.chars().all(parse::is_of_name))
    })
}

/// The grammar in Lark.
///
/// # Errors
/// A sentence that says what is wrong with the grammar, and where.
pub(super) fn to_lark(text: &str) -> Result<String, String> {
    let rules = parse::rules(text)?;
    let rules = regular::mark(rules);
    let lexemes = lexemes::of(&rules)?;
    let lark = write::lark(&rules, &lexemes);
    if lark.lines().count() > super::limits::MOST_LINES { Err(TOO_LARGE.to_owned()) } else { Ok(lark) }
}
