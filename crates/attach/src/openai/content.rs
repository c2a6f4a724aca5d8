//! Chunks as servers write them, and where in them the text stands.
//!
//! Invariant: text of the answer is never dropped because of the form that it has, or of a field beside it. What holds
//! something else than text, or is no chunk at all, is reported as not understood.

use serde_json::{Map, Value};

use crate::errors::is_nothing;

use super::chunk::{Choice, Chunk};

/// How deep parts of a text are looked into.
const DEPTH: usize = 8;

/// Fields of a delta that hold thought; servers send the same under several names, so only the first one counts.
const THOUGHT: &[&str] = &[
    "reasoning_content",
    "reasoning",
    "thinking",
    "thought",
    "reasoning_text",
    "reasoning_details",
    "thinking_blocks",
];

/// Fields of a delta that hold the answer; of the first four again only one counts.
const ANSWER: &[&str] =
    &["content", "text", "response", "generated_text", "output_text", "completion", "output", "message"];

/// Fields of a part of a text that hold it; of these, too, only the first one counts.
const PART: &[&str] = &["text", "content", "parts", "value", "output_text", "summary", "refusal", "transcript"];

/// Fields of a part that hold thought.
const THOUGHT_PART: &[&str] = &["thinking", "reasoning", "thought"];

/// Fields of a delta that are no text.
const SILENT: &[&str] =
    &["role", "name", "id", "index", "type", "object", "annotations", "provider_specific_fields", "metadata"];

/// Fields of a choice whose texts say nothing of the answer.
const OF_CHOICE: &[&str] = &[
    "finish_reason",
    "native_finish_reason",
    "stop_reason",
    "matched_stop",
    "logprobs",
    "content_filter_results",
    "content_filter_result",
    "token_ids",
    "prompt_token_ids",
];

/// Fields in which gateways wrap a chunk.
const WRAPPERS: &[&str] = &["data", "result", "output", "response", "chunk", "body"];

/// Fields of a chunk without choices that say nothing of the answer.
const BESIDE: &[&str] = &[
    "choices",
    "usage",
    "metrics",
    "sglext",
    "timings",
    "prompt_token_ids",
    "id",
    "object",
    "type",
    "ping",
    "created",
    "created_at",
    "model",
    "done",
    "system_fingerprint",
    "service_tier",
];

/// A chunk, and whether all of it is understood.
pub(super) struct Read {
    pub(super) chunk: Chunk,
    pub(super) is_known: bool,
}

/// Thought and answer.
#[derive(Default)]
struct Texts {
    thought: String,
    answer: String,
    has_unknown: bool,
}

/// Reads a chunk of a stream, or an answer in one piece.
pub(super) fn read(json: &Value) -> Read {
    let Value::Object(fields) = json else { return Read { chunk: Chunk::default(), is_known: json.is_null() } };
    if let Some(wrapped) = wrapped(fields) {
        return read(wrapped);
    }
    let mut chunk: Chunk = serde_json::from_value(json.clone()).unwrap_or_default();
    let of_choice = |choice: &Value| choice.as_object().map(choice_of);
    let (choice, is_known) = match fields.get("choices") {
        Some(Value::Array(choices)) => match choices.iter().find(|choice| choice.is_object()) {
            Some(choice) => of_choice(choice).unwrap_or_default(),
            None => (None, choices.iter().all(Value::is_null)),
        },
        Some(choice @ Value::Object(_)) => of_choice(choice).unwrap_or_default(),
        Some(Value::Null) | None => without_choices(fields),
        Some(_) => (None, false),
    };
    chunk.choice = choice;
    Read { chunk, is_known }
}

/// The chunk inside another object.
fn wrapped(fields: &Map<String, Value>) -> Option<&Value> {
    if fields.contains_key("choices") {
        return None;
    }
    WRAPPERS.iter().filter_map(|name| fields.get(*name)).find(|inner| inner.get("choices").is_some())
}

/// A chunk in another form than OpenAI's: the text stands in the chunk itself.
fn without_choices(fields: &Map<String, Value>) -> (Option<Choice>, bool) {
    let (choice, is_known) = choice_of(fields);
    let is_last = |kind: &str| kind.ends_with("done") || kind.ends_with("completed");
    let repeats = fields.get("type").and_then(Value::as_str).is_some_and(is_last);
    let choice = choice.filter(|choice| !choice.added_text().is_empty() || choice.finish_reason.is_some());
    if let Some(choice) = choice {
        return (Some(Choice { repeats, ..choice }), is_known);
    }
    (None, fields.keys().all(|name| BESIDE.contains(&name.as_str())) || fields.values().all(is_nothing))
}

fn choice_of(fields: &Map<String, Value>) -> (Option<Choice>, bool) {
    let mut choice: Choice = serde_json::from_value(Value::Object(fields.clone())).unwrap_or_default();
    let mut texts = Texts::default();
    // an answer in one piece has a message in place of a delta
    let delta = ["delta", "message"].iter().filter_map(|name| fields.get(*name)).find(|value| !is_nothing(value));
    match delta {
        Some(Value::Object(delta)) => texts.delta(delta),
        Some(other) => texts.part(other, false, DEPTH),
        None => {
            for name in ANSWER {
                if let Some(value) = fields.get(*name).filter(|value| !is_nothing(value)) {
                    texts.part(value, false, DEPTH);
                    break;
                }
            }
            texts.first_of(fields, THOUGHT, true);
            if texts.thought.is_empty() && texts.answer.is_empty() {
                let is_silent = |name: &str| OF_CHOICE.contains(&name) || SILENT.contains(&name);
                texts.has_unknown |= fields.iter().any(|(name, value)| !is_silent(name) && has_text(value));
            }
        }
    }
    choice.finish_reason = finish(fields);
    // a whole message beside the reason to end may be what the chunks before it were
    let is_message = fields.get("delta").is_none_or(is_nothing) && fields.contains_key("message");
    choice.repeats = is_message && choice.finish_reason.is_some();
    (choice.thought, choice.text) = (texts.thought, texts.answer);
    (Some(choice), !texts.has_unknown)
}

/// Why an answer ended; none for the forms of "not yet".
fn finish(fields: &Map<String, Value>) -> Option<String> {
    let reason = fields.get("finish_reason").or_else(|| fields.get("done_reason"));
    let text = match reason {
        Some(Value::String(text)) => text.trim().to_lowercase(),
        Some(Value::Object(object)) => object.get("type")?.as_str()?.to_lowercase(),
        _ => return fields.get("done").filter(|done| **done == Value::Bool(true)).map(|_| "stop".to_owned()),
    };
    Some(text).filter(|text| !matches!(text.as_str(), "" | "null" | "none"))
}

impl Texts {
    fn delta(&mut self, delta: &Map<String, Value>) {
        self.first_of(delta, THOUGHT, true);
        self.first_of(delta, ANSWER, false);
        self.first_of(delta, &["refusal"], false);
        let is_read = |name: &str| {
            THOUGHT.contains(&name) || ANSWER.contains(&name) || name == "refusal" || SILENT.contains(&name)
        };
        self.has_unknown |= delta.iter().any(|(name, value)| !is_read(name) && !is_nothing(value) && has_text(value));
    }

    /// Takes the first of these fields that holds anything.
    fn first_of(&mut self, fields: &Map<String, Value>, names: &[&str], is_thought: bool) {
        let value = names.iter().filter_map(|name| fields.get(*name)).find(|value| !is_nothing(value));
        if let Some(value) = value {
            self.part(value, is_thought, DEPTH);
        }
    }

    /// Takes a text, a list of parts, or a part.
    fn part(&mut self, value: &Value, is_thought: bool, depth: usize) {
        let Some(deeper) = depth.checked_sub(1) else {
            self.has_unknown = true;
            return;
        };
        match value {
            Value::String(text) => self.add(text, is_thought),
            Value::Number(number) => self.add(&number.to_string(), is_thought),
            Value::Array(parts) => parts.iter().for_each(|part| self.part(part, is_thought, deeper)),
            Value::Object(part) => {
                let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
                let is_thought =
                    is_thought || kind.contains("think") || kind.contains("reason") || kind.contains("thought");
                let first =
                    |names: &[&str]| names.iter().filter_map(|name| part.get(*name)).find(|value| !is_nothing(value));
                let (thought, text) = (first(THOUGHT_PART), first(PART));
                thought.iter().for_each(|value| self.part(value, true, deeper));
                text.iter().for_each(|value| self.part(value, is_thought, deeper));
                if thought.or(text).is_none() {
                    // an empty part is nothing, an image or a call is no text
                    self.has_unknown |= part.iter().any(|(name, value)| name != "type" && has_text(value));
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn add(&mut self, text: &str, is_thought: bool) {
        if is_thought { self.thought.push_str(text) } else { self.answer.push_str(text) }
    }
}

/// Whether a value holds a text anywhere.
fn has_text(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => list.iter().any(has_text),
        Value::Object(fields) => fields.values().any(has_text),
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value)] // so that cases are short
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(json: Value) -> (String, String, bool) {
        let read = read(&json);
        let choice = read.chunk.choice.unwrap_or_default();
        (choice.thought, choice.text, read.is_known)
    }

    fn delta(delta: Value) -> (String, String, bool) {
        texts(json!({ "choices": [{ "index": 0, "delta": delta }] }))
    }

    fn both(thought: &str, answer: &str) -> (String, String, bool) {
        (thought.to_owned(), answer.to_owned(), true)
    }

    #[test]
    fn text_is_found_in_every_form() {
        for content in [
            json!("Paris"),
            json!([{"type": "text", "text": "Paris"}]),
            json!([{"type": "text", "text": "Pa"}, {"type": "output_text", "text": "ris"}]),
            json!(["Pa", "ris"]),
            json!({"parts": [{"text": "Paris"}], "role": "model"}),
            json!({"type": "text", "text": {"value": "Paris", "annotations": []}}),
            json!([{"type": "text", "text": null}, {"content": "Paris"}]),
        ] {
            assert_eq!(delta(json!({ "content": content })), both("", "Paris"), "{content}");
        }
        assert_eq!(delta(json!("Paris")), both("", "Paris"));
        assert_eq!(delta(json!({"text": "Paris"})), both("", "Paris"));
        assert_eq!(delta(json!({"content": null, "refusal": "Paris"})), both("", "Paris"));
        assert_eq!(delta(json!({"content": 7})), both("", "7"));
        for chunk in [
            json!({"choices": [{"text": "Paris"}]}),
            json!({"choices": {"delta": {"content": "Paris"}}}),
            json!({"choices": [null, {"delta": {"content": "Paris"}}]}),
            json!({"choices": [{"delta": null, "message": {"content": "Paris"}}]}),
            json!({"choices": [{"delta": {}, "text": null, "message": {"role": "assistant", "content": "Paris"}}]}),
            json!({"message": {"role": "assistant", "content": "Paris"}, "done": false}),
            json!({"response": "Paris"}),
            json!({"content": "Paris", "stop": false}),
            json!({"data": {"choices": [{"delta": {"content": "Paris"}}]}}),
            json!({"output": {"text": "Paris", "finish_reason": "stop"}}),
            json!({"output_text": "Paris"}),
            json!({"completion": "Paris", "stop_reason": "stop"}),
            json!({"type": "content-delta", "delta": {"message": {"content": {"text": "Paris"}}}}),
            json!({"choices": [{"delta": {"content": "Paris"}, "logprobs": {"content": 7}, "token_ids": "x",
                   "prompt_token_ids": [-1]}], "usage": "none", "metrics": [], "sglext": 1, "prompt_token_ids": {}}),
        ] {
            assert_eq!(texts(chunk.clone()), both("", "Paris"), "{chunk}");
        }
    }

    #[test]
    fn thought_is_told_apart_under_each_of_its_names() {
        for thought in [
            json!({"reasoning": "Hm"}),
            json!({"reasoning_content": "Hm", "content": ""}),
            json!({"reasoning": "Hm", "reasoning_content": "Hm", "content": null}),
            json!({"reasoning": "Hm", "reasoning_details": [{"type": "reasoning.text", "text": "Hm"}]}),
            json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}]}),
            json!({"content": [{"type": "reasoning", "text": "Hm"}]}),
            json!({"thinking": "Hm"}),
        ] {
            assert_eq!(delta(thought.clone()), both("Hm", ""), "{thought}");
        }
        assert_eq!(delta(json!({"reasoning": "Hm", "content": "Yes"})), both("Hm", "Yes"));
        assert_eq!(delta(json!({"content": [{"thinking": "Hm", "text": "Yes"}]})), both("Hm", "Yes"));
    }

    #[test]
    fn what_is_no_text_is_reported_and_nothing_is_no_fault() {
        for silent in [
            json!({}),
            json!({"role": "assistant", "content": ""}),
            json!(null),
            json!({"content": [], "tool_calls": null}),
        ] {
            assert_eq!(delta(silent.clone()), both("", ""), "{silent}");
        }
        for chunk in [
            json!({"choices": []}),
            json!({"usage": {}}),
            json!({}),
            json!({"id": "x", "choices": null}),
            json!({"choices": [{"finish_reason": "stop", "stop_reason": "</s>", "content_filter_results": {"hate": {"severity": "safe"}}}]}),
        ] {
            assert_eq!(texts(chunk.clone()), both("", ""), "{chunk}");
        }
        for other in [
            json!({"tool_calls": [{"function": {"name": "f"}}]}),
            json!({"content": [{"type": "image_url", "image_url": {"url": "x"}}]}),
            json!({"foo": "bar"}),
        ] {
            assert!(!delta(other.clone()).2, "{other}");
        }
        for chunk in [
            json!({"foo": "bar"}),
            json!("text"),
            json!(7),
            json!({"choices": "x"}),
            json!({"choices": {"0": {"delta": {"content": "x"}}}}),
            json!({"choices": [{"answer": "x", "finish_reason": "stop"}]}),
        ] {
            assert!(!texts(chunk.clone()).2, "{chunk}");
        }
    }

    #[test]
    fn an_empty_reason_to_end_is_none() {
        let reason = |reason: Value| {
            let read = read(&json!({"choices": [{"delta": {}, "finish_reason": reason}]}));
            read.chunk.choice.and_then(|choice| choice.finish_reason)
        };
        for none in [json!(""), json!(null), json!("null"), json!(" "), json!(false), json!("None")] {
            assert_eq!(reason(none.clone()), None, "{none}");
        }
        assert_eq!(reason(json!("length")).as_deref(), Some("length"));
        assert_eq!(reason(json!({"type": "stop"})).as_deref(), Some("stop"));
        let done = read(&json!({"message": {"content": "x"}, "done": true}));
        assert_eq!(done.chunk.choice.unwrap().finish_reason.as_deref(), Some("stop"));
    }
}
