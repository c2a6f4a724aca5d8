//! How much the steps of a `tokenizer.json` can lengthen a text.
//!
//! Invariant: a text reaches the library only if its length times this growth is small. The library itself has no
//! limits: thirty steps that double a text make a gigabyte of one character.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;

use crate::ModelError;

/// Largest factor by which a text may grow; real tokenizers write three bytes for a space.
pub(super) const MAX_GROWTH: usize = 256;

/// Most steps of all kinds together; real tokenizers have up to a dozen.
const MAX_STEPS: usize = 64;

/// Most bytes of a pattern, which is compiled and tried at every character.
const MAX_PATTERN: usize = 1 << 16;

/// Most bytes that a model may add before or after the parts of every word.
const MAX_AFFIX: usize = 256;

/// Most characters of a word, which is looked up part by part, in quadratic time.
const MAX_WORD: u64 = 10_000;

/// Most bytes of a text after all steps: several times the longest context.
const MAX_TEXT: usize = 64 << 20;

/// The parts of a `tokenizer.json` that determine its cost.
#[derive(Deserialize)]
pub(super) struct Steps {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    decoder: Value,
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    model: Affixes,
}

/// A token that the library matches before all others, by its normal form.
#[derive(Deserialize)]
struct Added {
    #[serde(default)]
    content: String,
}

/// What the library adds around the parts of a word to look them up.
#[derive(Default, Deserialize)]
struct Affixes {
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    max_input_chars_per_word: Option<u64>,
}

impl Steps {
    /// Reads these parts of the file.
    pub(super) fn of(text: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(text)
    }

    /// Factor by which a text grows while it is tokenised, if all limits are met.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] with the limit that is exceeded.
    pub(super) fn checked(&self) -> Result<usize, ModelError> {
        let refuse = |what: &str| Err(ModelError::Unsupported(format!("tokenizer.json {what}")));
        let steps = self.all();
        if steps.iter().map(|step| count(step)).sum::<usize>() > MAX_STEPS {
            return refuse(&format!("has more than {MAX_STEPS} normalizers, pre-tokenizers and decoders"));
        }
        if steps.iter().any(|step| longest_pattern(step) > MAX_PATTERN) {
            return refuse(&format!("has a pattern of more than {MAX_PATTERN} bytes"));
        }
        let affixes = [&self.model.continuing_subword_prefix, &self.model.end_of_word_suffix];
        if affixes.into_iter().flatten().any(|affix| affix.len() > MAX_AFFIX) {
            return refuse(&format!("puts more than {MAX_AFFIX} bytes around every part of a word"));
        }
        if self.model.max_input_chars_per_word.is_some_and(|most| most > MAX_WORD) {
            return refuse(&format!("looks for parts in words of more than {MAX_WORD} characters"));
        }
        if self.growth() > MAX_GROWTH {
            return refuse("can make a text hundreds of times as long");
        }
        let growth = growth_of(&self.normalizer).saturating_mul(growth_of(&self.pre_tokenizer));
        let added = self.added_tokens.iter().map(|token| token.content.len()).fold(0, usize::saturating_add);
        if added.saturating_mul(growth) > MAX_TEXT {
            return refuse("adds tokens that are too long in total");
        }
        Ok(growth)
    }

    /// Product over all steps of the bytes that each can make of one byte.
    pub(super) fn growth(&self) -> usize {
        self.all().into_iter().fold(1, |growth, step| growth.saturating_mul(growth_of(step)))
    }

    fn all(&self) -> [&Value; 3] {
        [&self.normalizer, &self.pre_tokenizer, &self.decoder]
    }
}

/// Number of steps in a step, including itself; the JSON reader limits the depth.
fn count(step: &Value) -> usize {
    let own = usize::from(step.get("type").is_some());
    own + parts(step).map(count).sum::<usize>()
}

fn longest_pattern(step: &Value) -> usize {
    let own = step.get("pattern").map_or(0, |pattern| match pattern {
        Value::String(text) => text.len(),
        other => parts(other).filter_map(Value::as_str).map(str::len).max().unwrap_or(0),
    });
    parts(step).map(longest_pattern).fold(own, usize::max)
}

fn parts(step: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match step {
        Value::Array(parts) => Box::new(parts.iter()),
        Value::Object(fields) => Box::new(fields.values()),
        _ => Box::new(std::iter::empty()),
    }
}

fn growth_of(step: &Value) -> usize {
    parts(step).fold(own_growth(step), |growth, part| growth.saturating_mul(growth_of(part)))
}

/// Most bytes that a step, without its parts, can make of one byte.
fn own_growth(step: &Value) -> usize {
    let text = |name: &str| step.get(name).and_then(Value::as_str);
    let is_off = |name: &str| step.get(name) == Some(&Value::Bool(false));
    let put = ["content", "prepend"].iter().filter_map(|name| text(name));
    let put = put.map(|text| text.len().max(1)).fold(1, usize::saturating_mul);
    match text("type") {
        // a letter of at most two bytes for each byte, and a space before each part
        Some("ByteLevel") if is_off("add_prefix_space") => 2,
        Some("ByteLevel") if step.get("add_prefix_space").is_none() => 2, // the normalizer
        Some("ByteLevel") => 4,
        // a letter for each space, and one before each part
        Some("Metaspace") => 1 + text("replacement").map_or(3, str::len),
        // the worst cases of https://unicode.org/faq/normalization.html
        Some("NFC" | "NFD") => 3,
        Some("NFKC" | "NFKD") => 11,
        Some("Lowercase") => 2,
        // spaces around a character of three bytes, decomposed, in lower case
        Some("BertNormalizer" | "Bert") => 12,
        Some("Precompiled") => text("precompiled_charsmap").map_or(1, longest_entry),
        Some("Replace") if can_match_nothing(step) => put.saturating_add(1),
        _ => put,
    }
}

/// Whether a pattern can match between any two characters.
fn can_match_nothing(step: &Value) -> bool {
    let literal = step.get("pattern").and_then(|pattern| pattern.get("String")).and_then(Value::as_str);
    literal.is_none_or(str::is_empty)
}

/// Bytes of the longest replacement in a map of characters (SentencePiece's `precompiled_charsmap`): after its index,
/// the texts follow each other, each with a zero at its end.
fn longest_entry(map: &str) -> usize {
    let Ok(map) = STANDARD.decode(map) else { return 1 }; // the library rejects it
    let Some((index, rest)) = map.split_first_chunk::<4>() else { return 1 };
    let texts = rest.get(u32::from_le_bytes(*index) as usize..).unwrap_or_default();
    texts.split(|byte| *byte == 0).map(<[u8]>::len).max().unwrap_or(1).max(1)
}

/// Rejects a text of `len` bytes that is too long for the library.
///
/// # Errors
/// [`ModelError::Tokenizer`].
pub(super) fn check_text(len: usize, growth: usize) -> Result<(), ModelError> {
    if len.saturating_mul(growth) > MAX_TEXT {
        return Err(ModelError::Tokenizer(format!("a text of {len} bytes is too long for it")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checked(json: &Value) -> Result<usize, ModelError> {
        Steps::of(json.to_string().as_bytes()).unwrap().checked()
    }

    fn sequence(kind: &str, steps: &[Value]) -> Value {
        json!({"type": "Sequence", kind: steps})
    }

    #[test]
    fn real_tokenizers_have_little_growth() {
        let byte_level =
            json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
        let split = json!({"type": "Split", "pattern": {"Regex": "\\p{N}"}, "behavior": "Isolated", "invert": false});
        let qwen = json!({"normalizer": {"type": "NFC"}, "pre_tokenizer": sequence("pretokenizers", &[split, byte_level.clone()]), "decoder": byte_level});
        assert_eq!(checked(&qwen).unwrap(), 6);
        let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
        let gemma = json!({"normalizer": replace, "decoder": sequence("decoders", &[json!({"type": "ByteFallback"})])});
        assert_eq!(checked(&gemma).unwrap(), 3);
    }

    #[test]
    fn steps_that_multiply_are_rejected() {
        let says = |json: Value| checked(&json).unwrap_err().to_string();
        let many = |kind: &str, steps: &str, step: Value, count: usize| {
            says(json!({kind: sequence(steps, &vec![step; count])}))
        };
        let hundreds = "can make a text hundreds of times as long";
        for kind in ["ByteLevel", "NFD", "NFKD", "Lowercase"] {
            assert!(many("normalizer", "normalizers", json!({"type": kind}), 30).ends_with(hundreds), "{kind}");
        }
        let metaspace = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"});
        assert!(many("pre_tokenizer", "pretokenizers", metaspace, 5).ends_with(hundreds));
        let replace = json!({"type": "Replace", "pattern": {"Regex": ""}, "content": "a"});
        assert!(many("decoder", "decoders", replace, 9).ends_with(hundreds));
        let split = json!({"type": "Digits", "individual_digits": true});
        assert!(many("pre_tokenizer", "pretokenizers", split, 65).contains("more than 64 normalizers"));
        let long = json!({"type": "Split", "pattern": {"Regex": "a".repeat(70_000)}, "behavior": "Isolated"});
        assert!(says(json!({"pre_tokenizer": long})).contains("pattern of more than"));
    }

    #[test]
    fn the_longest_text_of_a_map_of_characters_counts() {
        let map = |texts: &str| {
            let bytes = [&8u32.to_le_bytes()[..], &[0; 8], texts.as_bytes()].concat();
            json!({"normalizer": {"type": "Precompiled", "precompiled_charsmap": STANDARD.encode(bytes)}})
        };
        assert_eq!(checked(&map("a\0abc\0")).unwrap(), 3);
        assert!(checked(&map(&"a".repeat(300))).is_err());
    }

    #[test]
    fn models_and_added_tokens_are_limited() {
        let says = |json: Value| checked(&json).unwrap_err().to_string();
        assert!(says(json!({"model": {"continuing_subword_prefix": "#".repeat(300)}})).contains("around every part"));
        assert!(
            says(json!({"model": {"max_input_chars_per_word": 1u64 << 40}})).contains("more than 10000 characters")
        );
        let grown = json!({"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "a".repeat(200)},
                           "added_tokens": [{"content": "a".repeat(400_000)}]});
        assert!(says(grown).contains("too long in total"));
    }

    #[test]
    fn the_length_of_a_text_after_growth_counts() {
        assert!(check_text(1 << 20, 64).is_ok());
        assert_eq!(
            check_text(1 << 20, 65).unwrap_err().to_string(),
            "tokenizer: a text of 1048576 bytes is too long for it"
        );
    }
}
