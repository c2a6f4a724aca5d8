//! The grammar of a run: which texts an answer may be, and what that did in a round.

use serde::{Deserialize, Serialize};

named_enum! {
    /// In what a grammar is written.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[cfg_attr(test, derive(schemars::JsonSchema))]
    #[serde(rename_all = "kebab-case")]
    pub enum GrammarKind {
        /// A JSON schema: the answer is JSON that it describes.
        #[default]
        JsonSchema = "json-schema",
        /// A regular expression that matches the whole answer.
        Regex = "regex",
        /// A grammar in the Lark syntax of llguidance.
        Lark = "lark",
    }
    from "kind of grammar"
}

impl GrammarKind {
    /// The name in a sentence.
    #[must_use]
    pub const fn noun(self) -> &'static str {
        match self {
            Self::JsonSchema => "JSON schema",
            Self::Regex => "regular expression",
            Self::Lark => "grammar",
        }
    }
}

/// Most bytes of a grammar in a header; the rest is cut off.
const MOST_SHOWN: usize = 64 << 10;

/// What every answer of a run must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Grammar {
    /// In what it is written.
    pub kind: GrammarKind,
    /// Its text; in a header at most 64 KiB of it.
    pub text: String,
}

impl Grammar {
    /// The grammar with a text short enough for a header.
    #[must_use]
    pub fn shortened(&self) -> Self {
        let mut end = self.text.len().min(MOST_SHOWN);
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        Self { kind: self.kind, text: self.text[..end].to_owned() }
    }
}

/// What the grammar did to one row of the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MaskedRow {
    /// Number of tokens that it allowed.
    pub allowed: u32,
    /// Probability at temperature 1 of all tokens that it removed, 0 to 1.
    #[cfg_attr(test, schemars(transform = super::schema::probability))]
    pub removed: f32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_a_bounded_part_of_a_grammar_and_whole_characters() {
        let grammar = Grammar { kind: GrammarKind::Lark, text: "ä".repeat(MOST_SHOWN) };
        let short = grammar.shortened();
        assert!(short.text.len() <= MOST_SHOWN && short.text.len() > MOST_SHOWN - 4, "{}", short.text.len());
        assert_eq!(short.shortened(), short);
        let odd = Grammar { text: format!("a{}", grammar.text), ..grammar };
        assert!(odd.shortened().text.ends_with('ä'));
    }

    #[test]
    fn kinds_are_read_by_their_names() {
        for kind in GrammarKind::ALL {
            assert_eq!(kind.name().parse(), Ok(*kind));
            assert_eq!(serde_json::to_string(kind).unwrap(), format!("\"{}\"", kind.name()));
        }
    }
}
