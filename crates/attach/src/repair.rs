//! JSON as some servers write it: with `NaN`, with half of a surrogate pair, with raw control characters in texts, with a comma
//! after the last entry.
//!
//! Invariant: a text that is JSON is read as it is; only one that is none is repaired, in one pass.

use serde_json::Value;

/// Reads JSON, repaired if necessary; none if it still is none.
pub(super) fn parse(text: &str) -> Option<Value> {
    let repair = || text.trim_start().starts_with(['{', '[']).then(|| repaired(text));
    serde_json::from_str(text).ok().or_else(|| serde_json::from_str(&repair()?).ok())
}

fn repaired(text: &str) -> String {
    let mut all = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if c == '"' {
            all.push('"');
            rest = string(&rest[1..], &mut all);
        } else if c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.') {
            let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.' | '_');
            let len = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(len);
            all.push_str(if is_json_word(word) { word } else { "null" });
            rest = after;
        } else {
            if matches!(c, '}' | ']') {
                let kept = all.trim_end().strip_suffix(',').map_or(all.len(), str::len);
                all.truncate(kept);
            }
            all.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    all
}

/// Whether a word outside of texts is JSON: a literal, or a number that is finite.
fn is_json_word(word: &str) -> bool {
    matches!(word, "true" | "false" | "null")
        || (word.ends_with(|c: char| c.is_ascii_digit()) && word.parse().is_ok_and(f64::is_finite))
}

/// Copies a text up to its closing quotation mark; returns what follows.
fn string<'a>(mut rest: &'a str, all: &mut String) -> &'a str {
    while let Some(c) = rest.chars().next() {
        match c {
            '"' => {
                all.push('"');
                return &rest[1..];
            }
            '\\' => {
                let (len, escape) = escape(rest);
                all.push_str(escape);
                rest = &rest[len..];
            }
            c if c < ' ' => {
                all.push_str(&format!("\\u{:04x}", u32::from(c)));
                rest = &rest[1..];
            }
            c => {
                all.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    rest
}

/// Bytes of the escape at the beginning, and what is written for it.
fn escape(rest: &str) -> (usize, &str) {
    let unit = |at: usize| u16::from_str_radix(rest.get(at..at + 6)?.strip_prefix("\\u")?, 16).ok();
    match unit(0) {
        Some(0xd800..=0xdbff) if unit(6).is_some_and(|low| (0xdc00..=0xdfff).contains(&low)) => (12, &rest[..12]),
        Some(0xd800..=0xdfff) => (6, "\\ufffd"),
        Some(_) => (6, &rest[..6]),
        None => match rest[1..].chars().next() {
            Some('"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't') => (2, &rest[..2]),
            // an escape that JSON does not have stands for the backslash itself
            _ => (1, "\\\\"),
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_escapes_and_characters_that_json_does_not_have_are_repaired() {
        for (text, value) in [
            (r#"{"a":NaN,"b":-Infinity,"c":"x"}"#, json!({"a": null, "b": null, "c": "x"})),
            (r#"{"a":1e999,"b":1.5,"c":-2}"#, json!({"a": null, "b": 1.5, "c": -2})),
            (r#"{"a":None,"b":True}"#, json!({"a": null, "b": null})),
            (r#"{"a":"\ud83c","b":"\udf0d \ud83c\udf0d"}"#, json!({"a": "\u{fffd}", "b": "\u{fffd} 🌍"})),
            ("{\"a\":\"x\ny\tz\"}", json!({"a": "x\ny\tz"})),
            (r#"{"a":"\d\""}"#, json!({"a": "\\d\""})),
            (r#"{"a":"NaN"}"#, json!({"a": "NaN"})),
            (r#"{"a":[1, 2, ],"b":",]",}"#, json!({"a": [1, 2], "b": ",]"})),
        ] {
            assert_eq!(parse(text), Some(value), "{text}");
        }
        for text in ["", "{", "{\"a\":\"\\", "{\"a\":\"\\u12", "<html>", "oops"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,40}", cut in 0usize..60) {
            let json = json!({ "a": text, "b": [1.5, null] }).to_string();
            prop_assert_eq!(parse(&json), serde_json::from_str(&json).ok());
            let cut = (0..=cut.min(json.len())).rev().find(|at| json.is_char_boundary(*at)).unwrap_or(0);
            let _ = parse(&json[..cut]);
            let _ = parse(&text);
        }
    }
}
