//! Reads the sources of this crate: their files, tokens and text strings, and what is compiled for tests only.

#![allow(dead_code)] // each test file uses a part

use std::fs;
use std::iter::Peekable;
use std::path::{Path, PathBuf};

fn files_in(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_in(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

/// Name and text of every Rust file below `folder`, and the modules declared under `#[cfg(test)]`.
pub(crate) fn texts(folder: &str, at_least: usize) -> (Vec<(String, String)>, Vec<String>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files = Vec::new();
    files_in(&root, &mut files);
    assert!(files.len() >= at_least, "the sources were not found");
    files.sort();
    let name = |file: &Path| file.strip_prefix(&root).unwrap().to_string_lossy().replace('\\', "/");
    let texts: Vec<_> = files.iter().map(|file| (name(file), fs::read_to_string(file).unwrap())).collect();
    let tests = texts.iter().flat_map(|(file, text)| test_modules_of(file, text)).collect();
    (texts, tests)
}

/// Whether a file belongs to a module that is compiled for tests only.
pub(crate) fn is_test(file: &str, tests: &[String]) -> bool {
    tests.iter().any(|test| is_in(&module_of(file), test))
}

/// Module of a file below `src/`: `tui::update` for `tui/update/mod.rs` and for `tui/update.rs`.
pub(crate) fn module_of(file: &str) -> String {
    let path = file.trim_end_matches(".rs");
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if ["lib", "main"].contains(&path) { String::new() } else { path.replace('/', "::") }
}

/// Whether a path is that module, or lies in it.
pub(crate) fn is_in(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| module.is_empty() || rest.is_empty() || rest.starts_with("::"))
}

/// Modules that a file declares under `#[cfg(test)]`.
pub(crate) fn test_modules_of(file: &str, code: &str) -> Vec<String> {
    let module = module_of(file);
    let (_, names) = without_tests(&tokens(code));
    names.iter().map(|name| if module.is_empty() { (*name).to_owned() } else { format!("{module}::{name}") }).collect()
}

/// The code without comments, literals and items under `#[cfg(test)]`, one blank between tokens that are not
/// part of one path.
pub(crate) fn bare_code(code: &str) -> String {
    without_tests(&tokens(code)).0.join(" ").replace(" :: ", "::")
}

/// Tokens outside `#[cfg(test)]` items and `#[cfg_attr(test, …)]`, and the names of the modules declared by those items.
pub(crate) fn without_tests<'a>(tokens: &[&'a str]) -> (Vec<&'a str>, Vec<&'a str>) {
    const TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    const TEST_ATTRIBUTE: [&str; 6] = ["#", "[", "cfg_attr", "(", "test", ","];
    let (mut kept, mut modules, mut at) = (Vec::new(), Vec::new(), 0);
    while at < tokens.len() {
        if tokens[at..].starts_with(&TEST_ATTRIBUTE) {
            at += attribute_length(&tokens[at..]);
            continue;
        }
        if !tokens[at..].starts_with(&TEST) {
            kept.push(tokens[at]);
            at += 1;
            continue;
        }
        let end = at + TEST.len() + item_length(&tokens[at + TEST.len()..]);
        let item = &tokens[at..end];
        if let [.., "mod", name, ";"] = item {
            modules.push(*name);
        }
        at = end;
    }
    (kept, modules)
}

/// Number of tokens of the attribute at the beginning.
fn attribute_length(tokens: &[&str]) -> usize {
    let mut depth = 0;
    let ends = |token: &&str| {
        depth += i32::from(*token == "[") - i32::from(*token == "]");
        depth == 0 && *token == "]"
    };
    tokens.iter().position(ends).map_or(tokens.len(), |end| end + 1)
}

/// Number of tokens of the item at the beginning, its other attributes included: up to a semicolon or to the
/// end of a block, outside of all brackets.
fn item_length(tokens: &[&str]) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        match *token {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            _ => {}
        }
        if depth < 0 {
            return at; // the end of the block around the item
        }
        if depth == 0 && [";", "}"].contains(token) {
            return at + 1;
        }
    }
    tokens.len()
}

/// Words, `::` and other signs one by one, without comments and literals.
pub(crate) fn tokens(code: &str) -> Vec<&str> {
    tokens_and_literals(code).into_iter().filter(|token| literal_length(token).is_none()).collect()
}

/// The text strings outside `#[cfg(test)]` items, with their quotes and escapes.
pub(crate) fn strings_of(code: &str) -> Vec<&str> {
    let (tokens, _) = without_tests(&tokens_and_literals(code));
    tokens.into_iter().filter(|token| literal_length(token).is_some() && token.ends_with(['"', '#'])).collect()
}

fn tokens_and_literals(code: &str) -> Vec<&str> {
    let (mut rest, mut tokens) = (code, Vec::new());
    while let Some(first) = rest.chars().next() {
        if let Some(length) = blank_length(rest) {
            rest = &rest[length..];
            continue;
        }
        let word = || length_while(rest, |c| c.is_alphanumeric() || c == '_');
        let length = match literal_length(rest).unwrap_or_else(word) {
            0 if rest.starts_with("::") => 2,
            0 => first.len_utf8(),
            length => length,
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token);
        rest = after;
    }
    tokens
}

fn length_while(text: &str, is_part: impl Fn(char) -> bool) -> usize {
    text.find(|c| !is_part(c)).unwrap_or(text.len())
}

/// Length of the white space or comment at the beginning, if one is there.
fn blank_length(text: &str) -> Option<usize> {
    let white = length_while(text, char::is_whitespace);
    if white > 0 {
        return Some(white);
    }
    if text.starts_with("//") {
        return Some(length_while(text, |c| c != '\n'));
    }
    if text.starts_with("/*") {
        return Some(text.find("*/").map_or(text.len(), |end| end + 2));
    }
    None
}

/// Length of the literal or lifetime at the beginning, if one is there.
fn literal_length(text: &str) -> Option<usize> {
    let prefix = ["br", "cr", "r", "b", "c"].iter().find(|prefix| text.starts_with(**prefix)).map_or("", |p| *p);
    let literal = &text[prefix.len()..];
    let length = if prefix.ends_with('r') { raw_length(literal) } else { quoted_length(literal) };
    length.map(|length| prefix.len() + length)
}

/// Length of `"…"` or `#"…"#` after its `r`.
fn raw_length(text: &str) -> Option<usize> {
    let hashes = length_while(text, |c| c == '#');
    let inside = text[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", &text[..hashes]);
    Some(inside.find(&end).map_or(text.len(), |at| hashes + 1 + at + end.len()))
}

/// Length of a string, a character or a lifetime.
fn quoted_length(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().peekable();
    match chars.next()?.1 {
        '"' => Some(closing(&mut chars, '"').unwrap_or(text.len())),
        '\'' => {
            let inside = &text[1..];
            let is_character = inside.starts_with('\\') || inside.chars().nth(1) == Some('\'');
            let end = if is_character { closing(&mut chars, '\'') } else { None };
            Some(end.unwrap_or(1 + length_while(inside, |c| c.is_alphanumeric() || c == '_')))
        }
        _ => None,
    }
}

/// Index after the closing quote.
fn closing(chars: &mut Peekable<std::str::CharIndices>, quote: char) -> Option<usize> {
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            chars.next();
        } else if c == quote {
            return Some(at + 1);
        }
    }
    None
}
