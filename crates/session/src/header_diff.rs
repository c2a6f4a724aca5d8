//! Where the headers of two runs differ: models, machine, settings at the start.
//!
//! Invariant: all fields are compared in their written form, so none is forgotten when fields are added; the time of
//! the run and fields that follow from others are left out. A digest that one side lacks is not a difference.

use serde_json::Value;

use draftscope_protocol::{Baseline, Header};

/// A field that differs between two runs.
pub type HeaderDifference = (String, String, String);

/// Fields that do not describe what a run was made of, or follow from other fields.
const LEFT_OUT: [&str; 5] = ["version", "started_unix_ms", "capabilities", "drafters", "lossless"];

/// Fields that identify a model, listed before the rest of its card.
const OF_MODELS: [&str; 7] = ["name", "file", "sha256", "dtype", "draft_vocab", "vocab_method", "context_vocab"];

/// Objects whose fields are named without the object's name.
const GROUPS: [&str; 3] = ["settings", "sampling", "drafting"];

/// Fields listed first, in this order; the rest follows by name.
const FIRST: [&str; 11] =
    ["program", "target", "target file", "dtype", "device", "backend", "drafter", "k", "rule", "temperature", "seed"];

/// Characters of a digest that are shown.
const DIGEST: usize = 12;

/// Shown for a field that a run does not have.
const NONE: &str = "–";

/// The fields in which two headers differ: name, then both values.
#[must_use]
pub fn header_diff(a: &Header, b: &Header) -> Vec<HeaderDifference> {
    let (a, b) = (facts(a), facts(b));
    let mut names: Vec<&String> = a.iter().chain(&b).map(|(name, _)| name).collect();
    let place = |name: &str| FIRST.iter().position(|first| *first == name).unwrap_or(FIRST.len());
    names.sort_by_key(|name| (place(name), *name));
    names.dedup();
    let value = |facts: &[(String, String)], name: &str| {
        facts.iter().find(|(known, _)| known == name).map_or(NONE.to_owned(), |(_, value)| value.clone())
    };
    let told = names.into_iter().map(|name| (name.clone(), value(&a, name), value(&b, name)));
    told.filter(|(name, a, b)| a != b && !(name.ends_with("sha256") && (a == NONE || b == NONE))).collect()
}

/// Name and value of every field.
fn facts(header: &Header) -> Vec<(String, String)> {
    let settings = &header.settings;
    let mut written = json(header);
    // defaults are not written
    written["settings"]["drafting"] = json(&settings.drafting);
    written["settings"]["leniency"] = json(&settings.leniency);
    written["settings"]["baseline"] = baseline(settings.baseline).into();
    written["settings"]["draft_len"] = settings.asked_draft_len().into();
    let mut facts = Vec::new();
    if let Value::Object(fields) = &mut written {
        fields.retain(|name, _| !LEFT_OUT.contains(&name.as_str()));
        for of in ["model", "drafter"] {
            if let Some(Value::Object(model)) = fields.get_mut(of) {
                model.retain(|name, _| OF_MODELS.contains(&name.as_str()));
            }
        }
        if let Some(Value::Object(engine)) = fields.get_mut("engine") {
            engine.remove("counted"); // grows with every answer
        }
        if let Some(Value::Object(settings)) = fields.get_mut("settings") {
            settings.remove("draft_len_mode"); // k says it
        }
    }
    flatten(&written, &mut Vec::new(), &mut facts);
    facts
}

fn baseline(baseline: Baseline) -> String {
    match baseline {
        Baseline::Off => "off".to_owned(),
        Baseline::Probe(tokens) => format!("probe {tokens}"),
        Baseline::Race => "race".to_owned(),
    }
}

/// Through text, which writes an `f32` with its own digits.
fn json(value: &impl serde::Serialize) -> Value {
    serde_json::to_string(value).ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

fn flatten<'a>(value: &'a Value, path: &mut Vec<&'a str>, facts: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                path.push(field);
                flatten(value, path, facts);
                path.pop();
            }
        }
        Value::Null => {}
        Value::String(text) if path.last() == Some(&"sha256") => {
            facts.push((name(path), text.chars().take(DIGEST).collect()));
        }
        Value::String(text) => facts.push((name(path), text.clone())),
        other => facts.push((name(path), other.to_string())),
    }
}

/// The field's name in options, docs and on screen.
fn name(path: &[&str]) -> String {
    if path == ["model", "name"] {
        return "target".to_owned();
    }
    let words = path.iter().filter(|word| !GROUPS.contains(word)).map(|word| match *word {
        "model" => "target",
        "draft_len" => "k",
        "ctx_len" => "ctx",
        "pick" => "draft-pick",
        "mtp" => "mtp-spec",
        word => word,
    });
    words.collect::<Vec<_>>().join(" ").replace('_', "-")
}

#[cfg(test)]
mod tests {
    use super::super::fixture::header;
    use super::*;
    use draftscope_protocol::{DraftLenMode, Settings};

    type Change = fn(&mut Settings);

    fn between(change: impl Fn(&mut Header)) -> Vec<HeaderDifference> {
        let mut other = header();
        change(&mut other);
        header_diff(&header(), &other)
    }

    #[test]
    fn every_setting_is_compared() {
        assert!(between(|_| {}).is_empty());
        let names = |told: Vec<HeaderDifference>| told.into_iter().map(|(name, ..)| name).collect::<Vec<_>>();
        let changes: [(&str, Change); 9] = [
            ("k", |s| s.draft_len_mode = DraftLenMode::Auto),
            ("p-min", |s| s.drafting.p_min = 0.3),
            ("tree", |s| s.drafting.tree = Some(6)),
            ("leniency epsilon", |s| s.leniency.epsilon = 0.1),
            ("top-p", |s| s.sampling.top_p = 0.9),
            ("min-p", |s| s.sampling.min_p = 0.1),
            ("max-tokens", |s| s.max_tokens += 1),
            ("baseline", |s| s.baseline = Baseline::Off),
            ("probe-depth", |s| s.probe_depth = 3),
        ];
        for (name, change) in changes {
            assert_eq!(names(between(|header| change(&mut header.settings))), [name]);
        }
        assert_eq!(names(between(|header| header.threads += 1)), ["threads"]);
        assert_eq!(names(between(|header| header.ctx_len += 1)), ["ctx"]);
    }

    #[test]
    fn values_are_reported_as_they_were_set() {
        let told = between(|header| {
            header.settings.sampling.temperature = 0.7;
            header.settings.draft_len_mode = DraftLenMode::Auto;
        });
        let asked = header().settings.asked_draft_len();
        let temperature = header().settings.sampling.temperature;
        let row = |name: &str, a: String, b: &str| (name.to_owned(), a, b.to_owned());
        assert_eq!(
            told,
            [row("k", asked, "auto"), row("temperature", serde_json::to_string(&temperature).unwrap(), "0.7")]
        );
    }

    #[test]
    fn a_digest_that_was_not_computed_is_no_difference() {
        let sha = |sha: Option<&str>| {
            let mut header = header();
            header.model.sha256 = sha.map(str::to_owned);
            header
        };
        let (a, b) = ("a".repeat(64), "b".repeat(64));
        assert!(header_diff(&sha(None), &sha(Some(&a))).is_empty());
        let told = header_diff(&sha(Some(&a)), &sha(Some(&b)));
        assert_eq!(told, [("target sha256".to_owned(), "a".repeat(12), "b".repeat(12))]);
    }
}
