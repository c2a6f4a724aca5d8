//! The small files of a repository besides weights: which of them the cache lacks, and whether a `config.json` is that of
//! a draft head.
//!
//! Invariant: a file is asked for once. If a commit does not have it, that is noted as the hub's own programs do, by
//! an empty file `.no_exist/COMMIT/FILE` next to `snapshots`; their notes count as well.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde_json::Value;

use draftscope_host::file_access;

/// Files that are fetched if a repository has them.
pub(super) const FILES: [&str; 5] = [GENERATION, TOKENIZER_CONFIG, "tokenizer.json", TEMPLATE, "chat_template.json"];
const GENERATION: &str = "generation_config.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const TEMPLATE: &str = "chat_template.jinja";

/// Largest JSON file that is read, in bytes.
const MAX_JSON: u64 = 64 << 20;

/// Files that a complete snapshot lacks, except those noted as absent from its commit.
pub(super) fn missing(snapshot: &Path) -> Vec<&'static str> {
    if is_head(&snapshot.join(CONFIG)) {
        return Vec::new(); // it reads its target's tokens
    }
    let has_template = has_template(snapshot);
    let is_known = |file: &str| snapshot.join(file).is_file() || is_noted_absent(snapshot, file);
    let is_needed = |file: &str| !(has_template && file.starts_with("chat_template."));
    FILES.into_iter().filter(|file| !is_known(file) && is_needed(file)).collect()
}

/// Notes which files the repository does not have; a failure only costs another request.
pub(super) fn note_absent(snapshot: &Path, files: &[&str], has: impl Fn(&str) -> bool) {
    for note in files.iter().filter(|file| !has(file)).filter_map(|file| absent(snapshot, file)) {
        let _ = note.parent().map(fs::create_dir_all);
        let _ = File::create(note);
    }
}

/// Whether it is noted that the repository does not have the file.
pub(super) fn is_noted_absent(snapshot: &Path, file: &str) -> bool {
    absent(snapshot, file).is_some_and(|note| note.is_file())
}

/// Path of the note that a file is absent from this commit.
fn absent(snapshot: &Path, file: &str) -> Option<PathBuf> {
    let repo = snapshot.parent().filter(|folder| folder.ends_with("snapshots"))?.parent()?;
    Some(repo.join(".no_exist").join(snapshot.file_name()?).join(file))
}

fn has_template(snapshot: &Path) -> bool {
    let in_config = || json(&snapshot.join(TOKENIZER_CONFIG)).is_some_and(|config| !config["chat_template"].is_null());
    FILES.into_iter().any(|file| file.starts_with("chat_template.") && snapshot.join(file).is_file()) || in_config()
}

/// The value in a JSON file; none when it is no JSON or too large.
pub(super) fn json(path: &Path) -> Option<Value> {
    serde_json::from_slice(&file_access::read_regular(path, MAX_JSON).ok()?).ok()
}

pub(super) const CONFIG: &str = "config.json";

/// Whether a `config.json` is that of a draft head, which reads its target's tokens.
pub(super) fn is_head(config: &Path) -> bool {
    let named = |text: &serde_json::Value| text.as_str().is_some_and(|text| text.to_lowercase().contains("eagle"));
    json(config).is_some_and(|config| {
        config["draft_vocab_size"].is_u64()
            || config["model_type"].as_str().is_some_and(|kind| kind.ends_with("_assistant"))
            || named(&config["speculators_model_type"])
            || config["architectures"].as_array().is_some_and(|all| all.iter().any(named))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_missing_if_it_is_neither_there_nor_noted_as_absent() {
        let dir = tempfile::tempdir().unwrap();
        let snapshot = dir.path().join("snapshots").join("c0ffee");
        fs::create_dir_all(&snapshot).unwrap();
        let put = |file: &str, text: &str| fs::write(snapshot.join(file), text).unwrap();
        assert_eq!(missing(&snapshot), FILES);
        put(CONFIG, "{}");
        put("tokenizer.json", "{}");
        put(TOKENIZER_CONFIG, r#"{"chat_template": "x"}"#);
        assert_eq!(missing(&snapshot), [GENERATION], "the template may be in the tokenizer's configuration");
        put(TOKENIZER_CONFIG, "{}");
        note_absent(&snapshot, &FILES, |file| file == TEMPLATE);
        assert_eq!(missing(&snapshot), [TEMPLATE]);
        assert!(dir.path().join(".no_exist").join("c0ffee").join(GENERATION).is_file());
        put(TEMPLATE, "");
        assert_eq!(missing(&snapshot), [""; 0]);
        put(CONFIG, r#"{"draft_vocab_size": 32000}"#);
        fs::remove_file(snapshot.join(TEMPLATE)).unwrap();
        assert_eq!(missing(&snapshot), [""; 0], "a draft head reads its target's tokens");
    }
}
