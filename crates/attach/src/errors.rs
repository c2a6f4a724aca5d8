//! Errors inside a stream: which JSON is one, and its words.

use serde_json::Value;

use draftscope_http::error_words;

/// Whether JSON is an error in place of a chunk.
pub(super) fn is_error(json: &Value) -> bool {
    let is_given = |value: &Value| !is_nothing(value) && *value != Value::Bool(false);
    let Some(fields) = json.as_object() else { return false };
    let first = fields.get("choices").and_then(|choices| choices.get(0));
    if ["error", "errors"].iter().any(|name| fields.get(*name).is_some_and(is_given)) {
        return true;
    }
    if first.and_then(|choice| choice.get("error")).is_some_and(is_given) {
        return true;
    }
    let is_failure = |kind: &str| ["error", "failed", "exception"].iter().any(|word| kind.contains(word));
    let says = |name: &str| fields.get(name).and_then(Value::as_str).is_some_and(is_failure);
    let has_choices = fields.get("choices").is_some_and(is_given);
    let has_words = ["detail", "message", "msg", "error_message", "error_msg", "exception", "fault"]
        .iter()
        .any(|name| fields.get(*name).is_some_and(|value| is_given(value) && !is_message_of_chat(value)));
    !has_choices && (says("object") || says("type") || says("status") || has_words)
}

/// Whether a field named `message` is a part of a conversation, as Ollama's own routes send it.
fn is_message_of_chat(value: &Value) -> bool {
    value.get("content").is_some() || value.get("role").is_some()
}

/// The server's own words in an error inside a stream; the error itself if it has none.
pub(super) fn error_of(json: &Value) -> String {
    let named = error_words(json).or_else(|| error_words(json.pointer("/choices/0")?));
    named.unwrap_or_else(|| json.to_string().chars().take(300).collect())
}

/// Whether a value holds nothing: null, an empty text, list or object.
pub(super) fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.iter().all(is_nothing),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_in_every_form_are_no_chunks() {
        for error in [
            json!({"error": {"message": "x"}}),
            json!({"object": "error", "message": "x"}),
            json!({"detail": "x"}),
            json!({"error": "x", "choices": [{"delta": {"content": ""}, "finish_reason": "error"}]}),
            json!({"choices": [{"error": {"message": "x"}, "delta": {"content": ""}}]}),
            json!({"type": "error", "error": {"message": "x"}}),
            json!({"message": "x", "code": 400}),
            json!({"exception": "x"}),
            json!({"fault": {"faultstring": "x"}}),
            json!({"type": "response.failed", "response": {"error": {"message": "x"}}}),
        ] {
            assert!(is_error(&error), "{error}");
        }
        for chunk in [
            json!({"choices": [{"delta": {"content": "x"}}], "error": null}),
            json!({"choices": [{"delta": {"content": "x"}}], "error": {}, "message": "ok"}),
            json!({"message": {"content": "x"}}),
            json!({"id": "x", "object": "chat.completion.chunk"}),
        ] {
            assert!(!is_error(&chunk), "{chunk}");
        }
    }
}
