//! Structured output on a server: a JSON schema is sent with each prompt, and the server applies it.
//!
//! Only JSON schemas are sent. Regular expressions and grammars have another form on every server, and a server that
//! does not know a field ignores it, so that the answer would be free text.

use serde_json::{Value, json};

use draftscope_protocol::{Grammar, GrammarKind, Header, Prompt};

use super::server::Request;

/// What is said at the start.
const NOTICE: &str = "the server applies the JSON schema; the probabilities that it reports are those before its \
                                 mask, and which tokens the schema forced or refused is not known";

/// The schema that is sent with each prompt.
///
/// # Errors
/// A sentence for a grammar that servers do not take.
pub(super) fn schema(grammar: Option<&Grammar>) -> Result<Option<Value>, String> {
    let Some(grammar) = grammar else { return Ok(None) };
    if grammar.kind != GrammarKind::JsonSchema {
        let noun = grammar.kind.noun();
        return Err(format!("a server is asked for JSON schemas only, not for a {noun}: use --json-schema"));
    }
    serde_json::from_str(&grammar.text).map(Some).map_err(|error| format!("the JSON schema is no JSON: {error}"))
}

/// Notes the grammar in the header of a run; returns the sentence about it.
pub(super) fn announce(grammar: Option<&Grammar>, header: &mut Header) -> Option<String> {
    header.grammar = grammar.map(Grammar::shortened);
    grammar.map(|_| NOTICE.to_owned())
}

/// Adds the schema to a request: under llama-server's own name on its own route, else as OpenAI has it.
///
/// # Errors
/// A sentence for a prompt that goes on within an answer: servers begin the schema anew there.
pub(super) fn add(request: &mut Request, schema: Option<&Value>, prompt: &Prompt) -> Result<(), String> {
    let Some(schema) = schema else { return Ok(()) };
    if prompt.branch().is_some_and(|branch| branch.kept > 0) {
        return Err(
            "an answer with a JSON schema cannot be continued on a server, which would begin the schema anew".into()
        );
    }
    if request.path.ends_with("/completion") {
        request.body["json_schema"] = schema.clone();
    } else {
        request.body["response_format"] =
            json!({ "type": "json_schema", "json_schema": { "name": "answer", "schema": schema, "strict": true } });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use draftscope_protocol::{Branch, Continuation};

    fn request(path: &str) -> Request {
        Request { path: path.to_owned(), body: json!({ "prompt": "x" }), prompt: Vec::new() }
    }

    #[test]
    fn each_route_gets_the_schema_in_its_own_form() {
        let grammar = Grammar { kind: GrammarKind::JsonSchema, text: r#"{"type":"object"}"#.to_owned() };
        let schema = schema(Some(&grammar)).unwrap();
        let prompt = Prompt::Raw("x".to_owned());
        let mut own = request("/completion");
        add(&mut own, schema.as_ref(), &prompt).unwrap();
        assert_eq!(own.body, json!({ "prompt": "x", "json_schema": { "type": "object" } }));
        for path in ["/v1/chat/completions", "/v1/completions"] {
            let mut asked = request(path);
            add(&mut asked, schema.as_ref(), &prompt).unwrap();
            assert_eq!(asked.body["response_format"]["json_schema"]["schema"], json!({ "type": "object" }));
            assert_eq!(asked.body["response_format"]["type"], "json_schema");
        }
        let mut free = request("/completion");
        add(&mut free, None, &prompt).unwrap();
        assert_eq!(free.body, json!({ "prompt": "x" }));
    }

    #[test]
    fn what_servers_do_not_take_is_a_sentence() {
        for kind in [GrammarKind::Regex, GrammarKind::Lark] {
            let refusal = schema(Some(&Grammar { kind, text: "a".to_owned() })).unwrap_err();
            assert!(refusal.contains("--json-schema"), "{refusal}");
        }
        let broken = Grammar { kind: GrammarKind::JsonSchema, text: "{".to_owned() };
        assert!(schema(Some(&broken)).is_err());
        assert_eq!(schema(None), Ok(None));
    }

    #[test]
    fn an_answer_is_not_continued_under_a_schema() {
        let branch = Branch { turn: 1, kept: 2, forced: false };
        let from = Continuation { typed: "x".to_owned(), tokens: Vec::new(), branch, again: None };
        let prompt = Prompt::Branch(from);
        assert!(add(&mut request("/completion"), Some(&json!({})), &prompt).is_err());
        assert!(add(&mut request("/completion"), None, &prompt).is_ok());
    }
}
