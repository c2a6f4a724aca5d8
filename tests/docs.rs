//! README and book: links resolve, every page is listed, tables follow the program, the README stays short. Words
//! that the language rules retire stay out of everything that a user reads.
//!
//! `UPDATE_DOCS=1 cargo test --test docs` rewrites the key tables of `docs/keys.md`.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

#[path = "common/sources.rs"]
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use clap::{CommandFactory, ValueEnum};
use draftscope::cli::Cli;
use draftscope::export::Format;
use draftscope::protocol::{DrafterKind, VerifyRule};
use draftscope::tui::Keymap;

const README: &str = "README.md";
const MAX_LINES: usize = 130;
const MAX_LINE: usize = 110;
const MAX_CELL: usize = 80;

/// Words that the language rules retire.
const RETIRED: [&str; 10] = [
    "aside",
    "behind", // after, following
    "dear",
    "declined by name",
    "held",
    "laws",
    "take back", // roll back
    "taken back",
    "told",
    "whoever",
];

/// Texts besides README and book in which retired words are looked for.
const TEXTS: [&str; 19] = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "assets/config.toml",
    "assets/keymap.toml",
    "assets/lessons/1-positions.toml",
    "assets/lessons/2-cost.toml",
    "assets/lessons/3-round.toml",
    "assets/lessons/4-lossless.toml",
    "assets/lessons/5-sampling.toml",
    "assets/lessons/6-mtp.toml",
    "assets/lessons/7-losing.toml",
    "assets/lessons/8-quiz.toml",
    "assets/quiz/statements.toml",
    "benches/peers/README.md",
    "benches/shapes/README.md",
    "fuzz/README.md",
    "src/export/page/page.js",
    "tests/fixtures/checkpoints/README.md",
    "training/README.md",
];

/// Folders of Rust files whose text strings may reach a user, and the fewest files that they have.
const CODE: [(&str, usize); 12] = [
    ("src", 30),
    ("crates/attach/src", 20),
    ("crates/engine/src", 20),
    ("crates/host/src", 5),
    ("crates/http/src", 5),
    ("crates/kernels/src", 20),
    ("crates/learn/src", 20),
    ("crates/model/src", 100),
    ("crates/protocol/src", 20),
    ("crates/session/src", 40),
    ("crates/store/src", 10),
    ("crates/tui/src", 100),
];

/// Long options in the documents that belong to other programs.
const FOREIGN: [&str; 19] = [
    "--check",
    "--enable-per-request-metrics",
    "--features",
    "--no-default-features",
    "--help",
    "--locked",
    "--merge",
    "--metrics",
    "--model-draft",
    "--model-path",
    "--open",
    "--path",
    "--per-request-spec-decode-metrics",
    "--release",
    "--spec-type",
    "--speculative-algorithm",
    "--speculative-config",
    "--speculative-draft-model-path",
    "--test",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// `docs/*.md` by name relative to the repository.
fn pages() -> Vec<String> {
    let folder = fs::read_dir(root().join("docs")).unwrap();
    let names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut pages: Vec<_> = names.filter(|name| name.ends_with(".md")).map(|name| format!("docs/{name}")).collect();
    pages.sort();
    assert!(pages.len() > 10, "{pages:?}");
    pages
}

fn documents() -> Vec<String> {
    std::iter::once(README.to_owned()).chain(pages()).collect()
}

/// The lines of a document outside fenced code.
fn prose(text: &str) -> Vec<&str> {
    let mut in_code = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            lines.push(line);
        }
    }
    assert!(!in_code, "a code block is not closed");
    lines
}

/// A line without what stands in backquotes.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

/// Targets of `[text](target)`.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        let line = without_code(line);
        let mut rest = line.as_str();
        while let Some((_, tail)) = rest.split_once("](") {
            let (target, after) = tail.split_once(')').expect("a link has an end");
            found.push(target.to_owned());
            rest = after;
        }
    }
    found
}

/// Anchors of the headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let headings = prose(text).into_iter().filter(|line| line.starts_with('#'));
    let mut anchors = BTreeSet::new();
    for heading in headings {
        let title = heading.trim_start_matches('#').trim().replace('`', "");
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let slug: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase();
        let count = seen.entry(slug.clone()).and_modify(|count| *count += 1).or_default();
        anchors.insert(if *count == 0 { slug } else { format!("{slug}-{count}") });
    }
    anchors
}

/// What is wrong with a link in a document.
fn broken(document: &str, link: &str) -> Option<String> {
    if link.contains("://") {
        return None;
    }
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let folder = root().join(document).parent().unwrap().to_owned();
    let path: PathBuf = if file.is_empty() { root().join(document) } else { folder.join(file) };
    if !path.exists() {
        return Some(format!("{document}: there is no {link}"));
    }
    if document != README && !path.canonicalize().unwrap().starts_with(root().join("docs").canonicalize().unwrap()) {
        return Some(format!("{document}: {link} leads out of docs/, where the built book has nothing"));
    }
    let anchor = anchor?;
    let text = fs::read_to_string(&path).unwrap();
    (!anchors(&text).contains(anchor)).then(|| format!("{document}: {file} has no heading for #{anchor}"))
}

#[test]
fn every_relative_link_and_its_anchor_resolve() {
    let mut count = 0;
    let mut wrong = Vec::new();
    for document in documents() {
        for link in links(&read(&document)) {
            count += 1;
            wrong.extend(broken(&document, &link));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 50, "only {count} links were found");
}

#[test]
fn a_broken_link_and_a_broken_anchor_are_noticed() {
    assert!(broken(README, "docs/no-such-page.md").is_some());
    assert!(broken("docs/start.md", "glossary.md#no-such-term").is_some());
    assert!(broken("docs/start.md", "../Cargo.toml").is_some());
    assert_eq!(broken(README, "docs/glossary.md#glossary"), None);
    assert_eq!(links("a [b](c.md) `[d](e)` ![f](g.svg)\n```\n[h](i)\n```\n"), ["c.md", "g.svg"]);
    let headings = anchors("# One, two\n## `--k` auto\n## One, two\n");
    assert!(["one-two", "--k-auto", "one-two-1"].iter().all(|anchor| headings.contains(*anchor)), "{headings:?}");
}

/// Files and folders that a text names in backticks and the repository lacks. A path begins at the top, or in a folder that the
/// same section names; `NAME` stands for any name.
fn missing_paths(text: &str) -> Vec<String> {
    let mut missing = Vec::new();
    let mut bases = BTreeSet::new();
    for line in prose(text) {
        if line.starts_with('#') {
            bases = BTreeSet::from([root().to_owned()]);
        }
        for word in line.split('`').skip(1).step_by(2).flat_map(str::split_whitespace).filter(|word| is_path(word)) {
            let known = word.split_once("NAME").map_or(word, |(folder, _)| folder);
            let Some(found) = bases.iter().map(|base| base.join(known)).find(|path| path.exists()) else {
                missing.push(word.to_owned());
                continue;
            };
            bases.extend(found.parent().map(Path::to_owned));
            bases.extend(found.is_dir().then_some(found));
        }
    }
    missing
}

/// Whether a word in backticks is a path of the repository.
fn is_path(word: &str) -> bool {
    let is_file = [".rs", ".py", ".sh", ".md", ".toml"].iter().any(|end| word.ends_with(end));
    let is_plain = word.chars().all(|c| c.is_alphanumeric() || "._-/".contains(c)) && !word.starts_with('/');
    is_plain && (word.contains('/') || is_file)
}

#[test]
fn every_path_that_contributors_are_sent_to_exists() {
    for document in ["CONTRIBUTING.md", "docs/architecture.md"] {
        let text = read(document);
        assert_eq!(missing_paths(&text), [""; 0], "{document} names files that are not there");
        assert!(text.matches(".rs`").count() > 5, "{document}: no paths were found");
    }
}

#[test]
fn a_path_that_does_not_exist_is_noticed() {
    let here = "## A\n`src/cli.rs`, `cli/NAME.rs` and `crates/tui/src/`: `view/layout.rs`, `cargo test`\n";
    assert_eq!(missing_paths(here), [""; 0]);
    assert_eq!(
        missing_paths(&format!("{here}## B\n`layout.rs` `src/moved.rs --all`\n")),
        ["layout.rs", "src/moved.rs"]
    );
}

#[test]
fn the_summary_lists_every_page_once() {
    let mut listed = links(&read("docs/SUMMARY.md"));
    listed.sort();
    let named = pages().into_iter().map(|page| page.trim_start_matches("docs/").to_owned());
    let want: Vec<_> = named.filter(|page| page != "SUMMARY.md").collect();
    assert_eq!(listed, want, "docs/SUMMARY.md must list every page of docs/ once");
}

#[test]
fn the_book_is_built_from_docs() {
    let book: toml::Table = read("docs/book.toml").parse().unwrap();
    assert_eq!(book["book"]["src"].as_str(), Some("."));
}

#[test]
fn the_readme_is_short_and_narrow() {
    let text = read(README);
    let count = text.lines().count();
    assert!(count <= MAX_LINES, "README.md has {count} lines, at most {MAX_LINES} are allowed");
    for (index, line) in text.lines().enumerate() {
        let width = line.chars().count();
        assert!(width <= MAX_LINE, "README.md:{}: {width} characters", index + 1);
        let is_table = line.starts_with('|');
        for cell in line.split('|').filter(|_| is_table) {
            let width = cell.trim().chars().count();
            assert!(width <= MAX_CELL, "README.md:{}: a cell of {width} characters", index + 1);
        }
    }
}

/// Retired words in a line, outside code.
fn retired(line: &str) -> Vec<&'static str> {
    let kept = without_code(line).to_lowercase();
    let words: Vec<_> = kept.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let line = format!(" {} ", words.join(" "));
    RETIRED.into_iter().filter(|word| line.contains(&format!(" {word} "))).collect()
}

fn report_retired(found: &[String]) {
    assert!(found.is_empty(), "retired words:\n{}", found.join("\n"));
}

#[test]
fn retired_words_are_recognized() {
    assert_eq!(retired("What is **told**, `held` or Declined by name"), ["declined by name", "told"]);
    let code = "#[cfg(test)] const A: &str = \"aside\"; f(\"{told}\\nbehind it\"); // whoever\n".to_owned()
        + "let b = r#\"laws\"#; let c = 'd';";
    assert_eq!(sources::strings_of(&code), ["\"{told}\\nbehind it\"", "r#\"laws\"#"]);
    assert_eq!(retired(&spoken("\"{told}\\nbehind {it:?}\"")), ["behind"]);
}

#[test]
fn retired_words_stay_out_of_documents_and_assets() {
    let mut found = Vec::new();
    for document in documents().into_iter().chain(TEXTS.map(str::to_owned)) {
        for (index, line) in read(&document).lines().enumerate() {
            found.extend(retired(line).into_iter().map(|word| format!("{document}:{}: {word}", index + 1)));
        }
    }
    report_retired(&found);
}

/// Name and `--help` of a command and its subcommands.
fn helps(command: &mut clap::Command, into: &mut Vec<(String, String)>) {
    into.push((command.get_name().to_owned(), command.render_long_help().to_string()));
    command.get_subcommands_mut().for_each(|command| helps(command, into));
}

#[test]
fn retired_words_stay_out_of_the_help() {
    let mut texts = Vec::new();
    helps(&mut Cli::command(), &mut texts);
    assert!(texts.len() > 15, "only {} commands were found", texts.len());
    let found: Vec<_> = texts
        .iter()
        .flat_map(|(name, text)| retired(text).into_iter().map(move |word| format!("{name} --help: {word}")))
        .collect();
    report_retired(&found);
}

/// What a text string of the code says: without the names of what it prints.
fn spoken(literal: &str) -> String {
    let parts = literal.split('{').enumerate();
    let kept = parts.map(|(at, part)| if at == 0 { part } else { part.split_once('}').map_or("", |(_, rest)| rest) });
    kept.collect::<Vec<_>>().join(" ").replace("\\n", " ")
}

#[test]
fn retired_words_stay_out_of_messages() {
    let mut found = Vec::new();
    for (folder, at_least) in CODE {
        let (texts, tests) = sources::texts(folder, at_least);
        for (file, text) in texts.iter().filter(|(file, _)| !sources::is_test(file, &tests)) {
            for literal in sources::strings_of(text) {
                let words = retired(&spoken(literal));
                found.extend(words.iter().map(|word| format!("{folder}/{file}: {word}: {literal}")));
            }
        }
    }
    report_retired(&found);
}

/// Every long option of the program and its subcommands.
fn options(command: &clap::Command, into: &mut BTreeSet<String>) {
    into.extend(command.get_arguments().filter_map(|arg| arg.get_long()).map(|long| format!("--{long}")));
    command.get_subcommands().for_each(|command| options(command, into));
}

/// Words that begin with two hyphens.
fn named_options(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_'));
    words.filter(|word| word.starts_with("--") && word.chars().nth(2).is_some_and(char::is_alphabetic)).collect()
}

#[test]
fn the_documents_name_no_option_that_the_program_lacks_and_leave_none_out() {
    let mut known = BTreeSet::new();
    options(&Cli::command(), &mut known);
    let mut named = BTreeSet::new();
    for document in documents() {
        let text = read(&document);
        for option in named_options(&text) {
            let is_known = known.contains(option) || FOREIGN.contains(&option);
            assert!(is_known, "{document} names {option}, which does not exist");
            named.insert(option.to_owned());
        }
    }
    let missing: Vec<_> = known.difference(&named).collect();
    assert!(missing.is_empty(), "no document names {missing:?}");
}

#[test]
fn the_book_names_every_command_drafter_rule_and_format() {
    let book: String = documents().iter().map(|document| read(document)).collect();
    for command in Cli::command().get_subcommands() {
        let name = format!("draftscope {}", command.get_name());
        assert!(book.contains(&name), "no document names `{name}`");
    }
    let (drafters, rules, recordings) = (read("docs/drafters.md"), read("docs/rules.md"), read("docs/recordings.md"));
    for drafter in DrafterKind::ALL {
        assert!(drafters.contains(&format!("`{drafter}`")), "docs/drafters.md lacks {drafter}");
    }
    for rule in VerifyRule::ALL {
        assert!(rules.contains(&format!("`{rule}`")), "docs/rules.md lacks {rule}");
    }
    for format in Format::value_variants() {
        let value = format.to_possible_value().unwrap();
        assert!(recordings.contains(&format!("`{}`", value.get_name())), "docs/recordings.md lacks {value:?}");
    }
}

const KEYS: &str = "docs/keys.md";
const FROM: &str = "<!-- generated from the keymap: UPDATE_DOCS=1 cargo test --test docs -->\n";
const TO: &str = "<!-- end of the generated part -->\n";

#[test]
fn the_key_tables_are_those_of_the_keymap() {
    let page = read(KEYS);
    let (head, rest) = page.split_once(FROM).expect("the generated part begins");
    let (tables, tail) = rest.split_once(TO).expect("the generated part ends");
    let want = format!("\n{}", Keymap::bundled().to_markdown());
    if tables == want {
        return;
    }
    if std::env::var_os("UPDATE_DOCS").is_some_and(|value| value == "1") {
        fs::write(root().join(KEYS), format!("{head}{FROM}{want}{TO}{tail}")).unwrap();
        return;
    }
    panic!("{KEYS} differs from the keymap; run UPDATE_DOCS=1 cargo test --test docs, or write:\n{want}");
}
