//! Who may import whom. One crate cannot enforce this by itself, so the `use crate::…` lines of
//! every file are read against a table.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use std::fs;
use std::path::{Path, PathBuf};

/// Module, and the modules of this crate it may name.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("protocol", &[]),
    ("stream", &["protocol"]),
    ("store", &[]),
    ("model", &["protocol"]),
    ("speculate", &["model", "protocol"]),
    ("generate", &["speculate", "model", "protocol"]),
    ("engine", &["speculate", "model", "protocol", "stream"]),
    ("identity", &["speculate", "model", "protocol"]),
    ("trace", &["protocol", "stream"]),
    ("session", &["protocol", "speculate::verify", "speculate::distribution", "speculate::draws", "speculate::policy"]),
    ("tui", &["protocol", "stream", "session", "config"]),
    ("headless", &["protocol", "stream", "session"]),
    ("export", &["protocol", "session", "trace", "tui"]),
    ("cli", &[]),
    ("config", &[]),
];

/// Words that must not stand in a module's code at all.
const MUST_NOT_KNOW: &[(&str, &[&str])] = &[
    ("protocol", &["candle_core", "ratatui", "std::fs", "std::time"]),
    ("model", &["ratatui", "crossterm", "EventKind"]),
    ("speculate", &["ratatui", "std::thread", "serde_json", "tokio"]),
    ("speculate/verify/", &["Tensor", "crate::model", "Instant"]),
    ("engine", &["ratatui", "crossterm", "std::fs"]),
    ("identity", &["ratatui", "std::fs", "std::thread", "Instant"]),
    ("session", &["candle_core", "ratatui", "std::time", "std::fs", "Instant"]),
    ("tui", &["candle_core", "tokenizers"]),
    ("headless", &["ratatui", "candle_core"]),
    ("trace", &["ratatui", "candle_core"]),
    ("export", &["candle_core", "tokenizers"]),
];

/// Files behind `#[cfg(test)] mod …`.
const TEST_FILES: &[&str] = &[
    "/tests.rs",
    "/fixture.rs",
    "/testing.rs",
    "/tests/mod.rs",
    "/tests/diff.rs",
    "/tests/recording.rs",
    "/tests/race.rs",
    "/tests/time.rs",
    "/tests/views.rs",
];

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

fn each_file(mut check: impl FnMut(&str, &str)) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 30, "the sources were not found");
    for file in files {
        let name = file.strip_prefix(&root).unwrap().to_string_lossy().replace('\\', "/");
        if TEST_FILES.iter().any(|tests| name.ends_with(tests)) {
            continue; // compiled for tests only, which may use more
        }
        let text = fs::read_to_string(&file).unwrap();
        // tests may use more, and comments may name anything
        let code = text.split("#[cfg(test)]").next().unwrap();
        let code: String =
            code.lines().filter(|l| !l.trim_start().starts_with("//")).map(|l| format!("{l}\n")).collect();
        check(&name, &code);
    }
}

/// Paths behind `crate::`, those of a group `crate::{a, b::{c, d}}` one by one (`a`, `b::`).
fn imports(code: &str) -> Vec<String> {
    let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || "_:".contains(*c)).collect::<String>();
    let mut paths = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + 7..];
        if !rest.starts_with('{') {
            paths.push(name(rest));
            continue;
        }
        let mut depth = 0;
        for (i, c) in rest.char_indices() {
            let begins = (c == '{' && depth == 0) || (c == ',' && depth == 1);
            depth += i32::from(c == '{') - i32::from(c == '}');
            if begins && !rest[i + 1..].trim_start().starts_with('}') {
                paths.push(name(rest[i + 1..].trim_start()));
            }
            if depth == 0 {
                break;
            }
        }
    }
    paths
}

#[test]
fn groups_of_imports_are_read() {
    let code = "use crate::{\n    model::{A, B},\n    protocol::C,\n};\nuse crate::stream::D;";
    assert_eq!(imports(code), ["model::", "protocol::C", "stream::D"]);
}

fn module_of(file: &str) -> &str {
    file.split(['/', '.']).next().unwrap_or(file)
}

#[test]
fn imports_follow_the_table() {
    each_file(|file, code| {
        let Some((module, allowed)) = MAY_IMPORT.iter().find(|(module, _)| *module == module_of(file)) else {
            assert!(["main", "lib", "commands"].contains(&module_of(file)), "{file}: add its module to the table");
            return;
        };
        for path in imports(code) {
            let fine = path.starts_with(module) || allowed.iter().any(|a| path.starts_with(a));
            assert!(fine, "{file} names crate::{path}; {module} may import {allowed:?}");
        }
    });
}

#[test]
fn modules_do_not_know_what_they_must_not() {
    each_file(|file, code| {
        for (module, words) in MUST_NOT_KNOW.iter().filter(|(module, _)| file.starts_with(module)) {
            for word in *words {
                assert!(!code.contains(word), "{file} names {word}, which {module} must not know");
            }
        }
    });
}

#[test]
fn files_fit_in_a_head() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let lines = text.lines().take_while(|l| *l != "#[cfg(test)]").count();
        let is_tests = TEST_FILES.iter().any(|tests| file.to_string_lossy().ends_with(tests));
        assert!(is_tests || lines <= 400, "{} has {lines} lines before its tests", file.display());
        assert!(text.starts_with("//!"), "{} does not say what it is", file.display());
    }
}
