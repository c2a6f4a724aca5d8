//! Takes any text as a grammar: a JSON schema, a regular expression, or Lark or GBNF. The first byte says which.

use draftscope::engine::grammar::check as checked;
use draftscope::protocol::{Grammar, GrammarKind};

use super::sentence;

/// Compiles the grammar for a vocabulary of bytes, up to the tokens that may come first.
pub fn check(bytes: &[u8]) {
    let Some((first, text)) = bytes.split_first() else { return };
    let kind = match first % 3 {
        0 => GrammarKind::JsonSchema,
        1 => GrammarKind::Regex,
        _ => GrammarKind::Lark,
    };
    let text = String::from_utf8_lossy(text).into_owned();
    if let Err(error) = checked(&Grammar { kind, text }) {
        sentence(&error);
    }
}
