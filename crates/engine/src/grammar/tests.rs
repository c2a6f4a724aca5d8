//! What can be said of a grammar without a model.

use draftscope_protocol::{Grammar, GrammarKind};

use super::check;
use super::error::GrammarError;

fn checked(kind: GrammarKind, text: &str) -> Result<(), GrammarError> {
    check(&Grammar { kind, text: text.to_owned() })
}

#[test]
fn sound_grammars_of_every_kind_pass() {
    assert_eq!(checked(GrammarKind::JsonSchema, "{\"type\": \"object\"}"), Ok(()));
    assert_eq!(checked(GrammarKind::JsonSchema, "true"), Ok(()));
    assert_eq!(checked(GrammarKind::Regex, "[a-z]+@[a-z]+\\.org"), Ok(()));
    assert_eq!(checked(GrammarKind::Lark, "start: \"yes\" | \"no\""), Ok(()));
    // tokens of a model, which is not there
    assert_eq!(checked(GrammarKind::Lark, "start: <|im_start|> \"yes\" <[1000]>"), Ok(()));
    assert_eq!(checked(GrammarKind::Lark, "root ::= <think> !<[1001]>* </think>"), Ok(()));
}

#[test]
fn a_mistake_is_one_line_that_names_what_was_given() {
    for (kind, text) in [(GrammarKind::JsonSchema, "{"), (GrammarKind::Regex, "("), (GrammarKind::Lark, "start: x")] {
        let error = checked(kind, text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("the {} cannot be used: ", kind.noun())), "{error}");
        assert!(!error.contains('\n') && error.len() < 400, "{error}");
    }
}

#[test]
fn long_chains_of_rules_fill_no_stack() {
    let chain = |name: &str| -> String { (0..19_900).map(|at| format!("{name}{at}: {name}{}\n", at + 1)).collect() };
    let definitions: String =
        (0..20_000).map(|at| format!("\"a{at}\": {{\"$ref\": \"#/$defs/a{}\"}}, ", at + 1)).collect();
    for (kind, text) in [
        (GrammarKind::Lark, format!("start: r0\n{}r19900: \"a\"", chain("r"))),
        (GrammarKind::Lark, format!("start: R0\n{}R19900: \"a\"", chain("R"))),
        (
            GrammarKind::JsonSchema,
            format!("{{\"$ref\": \"#/$defs/a0\", \"$defs\": {{{definitions}\"a20000\": true}}}}"),
        ),
    ] {
        if let Err(error) = checked(kind, &text) {
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
        }
    }
    let long = format!("start: \"a\"\n{}", chain("r").repeat(2));
    assert!(checked(GrammarKind::Lark, &long).unwrap_err().to_string().contains("lines"));
}
