//! What a server refused of a request: fields that an answer can do without are left out of later ones.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Fields that an answer can do without: first those that OpenAI's own API does not need.
const OPTIONAL: &[&str] = &[
    "stream_options",
    "seed",
    "logprobs",
    "top_logprobs",
    "return_token_ids",
    "stream_interval",
    "return_spec_tokens_details",
    "top_k",
    "min_p",
    "top_p",
    "temperature",
];

/// How many of them are left out where a refusal names no field.
const EXTRAS: usize = 9;

/// The longest answer, under its name and under its newer one.
const LENGTH: [&str; 2] = ["max_tokens", "max_completion_tokens"];

/// Words of a refusal that names no field.
const REFUSES: &[&str] = &[
    "extra",
    "unexpected",
    "unknown",
    "unrecognized",
    "unrecognised",
    "unsupported",
    "not permitted",
    "not supported",
    "not allowed",
    "additional",
    "forbidden",
];
const FIELDS: &[&str] = &["field", "param", "argument", "key", "input", "propert", "option"];

/// What is left out of requests.
#[derive(Debug, Default)]
pub(super) struct Refused {
    left_out: BTreeSet<&'static str>,
    /// Whether the longest answer goes by its newer name.
    is_renamed: bool,
}

impl Refused {
    /// The request without what was refused.
    pub(super) fn apply(&self, body: &mut Map<String, Value>) {
        body.retain(|name, _| !self.left_out.contains(name.as_str()));
        if self.is_renamed
            && let Some(length) = body.remove(LENGTH[0])
        {
            body.insert(LENGTH[1].to_owned(), length);
        }
    }

    /// Learns from a refusal of `sent`; a sentence if the prompt should be sent once more. Every field is learned once.
    pub(super) fn learn(&mut self, refusal: &str, sent: &Map<String, Value>) -> Option<String> {
        let text = refusal.to_lowercase();
        let is_sent = |name: &&&'static str| sent.contains_key(**name) && !self.left_out.contains(**name);
        let about =
            |name: &str| mentions(&text, name) || (name == "stream_options" && mentions(&text, "include_usage"));
        let mut named: Vec<&'static str> =
            OPTIONAL.iter().filter(is_sent).filter(|name| about(name)).copied().collect();
        if named.iter().any(|name| name.ends_with("logprobs")) {
            named.retain(|name| !name.ends_with("logprobs"));
            named.extend(["logprobs", "top_logprobs"].iter().filter(is_sent));
        }
        if mentions(&text, LENGTH[1]) && sent.contains_key(LENGTH[0]) && !self.is_renamed {
            self.is_renamed = true;
            return Some(format!("the server takes {} in place of {}: the prompt is sent again", LENGTH[1], LENGTH[0]));
        }
        let is_general = || [REFUSES, FIELDS].iter().all(|words| words.iter().any(|word| text.contains(word)));
        if named.is_empty() && is_general() {
            named = OPTIONAL[..EXTRAS].iter().filter(is_sent).copied().collect();
        }
        if named.is_empty() {
            return None;
        }
        self.left_out.extend(&named);
        let own = if named.contains(&"temperature") { "; its own temperature counts" } else { "" };
        let them = if named.len() == 1 { "it" } else { "them" };
        Some(format!("the server refuses {}: the prompt is sent again without {them}{own}", named.join(", ")))
    }
}

/// Whether a text has this name as a whole word.
fn mentions(text: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    text.match_indices(name).any(|(at, _)| {
        !text[..at].chars().next_back().is_some_and(is_word)
            && !text[at + name.len()..].chars().next().is_some_and(is_word)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn body() -> Map<String, Value> {
        let body = json!({"model": "m", "max_tokens": 9, "temperature": 0, "top_p": 1, "seed": 7, "stream": true,
            "stream_options": {}, "top_k": -1, "min_p": 0, "logprobs": true, "top_logprobs": 20});
        body.as_object().unwrap().clone()
    }

    /// Fields that are left out after these refusals, and how often the prompt is sent again.
    fn left_out(refusals: &[&str]) -> (Vec<String>, usize) {
        let (mut refused, mut again, mut sent) = (Refused::default(), 0, body());
        for refusal in refusals {
            again += usize::from(refused.learn(refusal, &sent).is_some());
            refused.apply(&mut sent);
        }
        let mut left_out: Vec<String> = body().keys().filter(|name| !sent.contains_key(*name)).cloned().collect();
        left_out.sort_unstable();
        (left_out, again)
    }

    #[test]
    fn named_fields_are_left_out_once() {
        assert_eq!(left_out(&["seed: Extra inputs are not permitted", "seed: no"]), (vec!["seed".into()], 1));
        let both = left_out(&["json: unknown field \"stream_options\"", "json: unknown field \"seed\""]);
        assert_eq!(both, (vec!["seed".into(), "stream_options".into()], 2));
        assert_eq!(left_out(&["at most 5 top_logprobs"]).0, ["logprobs", "top_logprobs"]);
        assert_eq!(left_out(&["`temperature` must be strictly positive"]).0, ["temperature"]);
        assert_eq!(left_out(&["Unsupported parameter: use 'max_completion_tokens'"]).0, ["max_tokens"]);
    }

    #[test]
    fn an_unnamed_field_is_any_of_those_that_are_extra() {
        let (fields, again) = left_out(&["Unexpected keys in the request", "Unexpected keys in the request"]);
        assert_eq!(again, 1);
        assert_eq!(fields, ["logprobs", "min_p", "seed", "stream_options", "top_k", "top_logprobs"]);
    }

    #[test]
    fn other_refusals_are_not_about_fields() {
        for refusal in [
            "this model's maximum context length is 99 tokens",
            "the model seed-oss does not exist",
            "no",
            "max_tokens is too large",
        ] {
            assert_eq!(left_out(&[refusal]), (Vec::new(), 0), "{refusal}");
        }
    }
}
