//! What can be said of a grammar without a model.

use draftscope_protocol::{Grammar, GrammarKind};

use super::{GrammarError, check};

fn checked(kind: GrammarKind, text: &str) -> Result<(), GrammarError> {
    check(&Grammar { kind, text: text.to_owned() })
}

#[test]
fn sound_grammars_of_every_kind_pass() {
    assert_eq!(checked(GrammarKind::JsonSchema, "{\"type\": \"object\"}"), Ok(()));
    assert_eq!(checked(GrammarKind::JsonSchema, "true"), Ok(()));
    assert_eq!(checked(GrammarKind::Regex, "[a-z]+@[a-z]+\\.org"), Ok(()));
    assert_eq!(checked(GrammarKind::Lark, "start: \"yes\" | \"no\""), Ok(()));
}

#[test]
fn a_mistake_is_one_line_that_names_what_was_given() {
    for (kind, text) in [(GrammarKind::JsonSchema, "{"), (GrammarKind::Regex, "("), (GrammarKind::Lark, "start: x")] {
        let error = checked(kind, text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("the {} cannot be used: ", kind.noun())), "{error}");
        assert!(!error.contains('\n') && error.len() < 400, "{error}");
    }
}
