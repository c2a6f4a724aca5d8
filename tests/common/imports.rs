//! Reads which modules of this crate a source file names, as absolute paths.
//!
//! `crate::…`, `self::…`, `super::…` and paths that begin with a module declared in the same file are
//! resolved. Comments, literals and items under `#[cfg(test)]` are not read.

use std::iter::Peekable;

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

/// Absolute paths of what a file's code names in this crate, in order: `tui::app::App` for
/// `use super::app::App` in `tui/search.rs`. Each leaf of a group is a path of its own.
pub(crate) fn imports_of(file: &str, code: &str) -> Vec<String> {
    let (tokens, _) = without_tests(&tokens(code));
    let children: Vec<_> = tokens.windows(2).filter(|pair| pair[0] == "mod").map(|pair| pair[1]).collect();
    let mut module: Vec<_> = segments(&module_of(file));
    let mut blocks = Vec::new(); // true: the block of an inline module
    let (mut paths, mut at) = (Vec::new(), 0);
    while at < tokens.len() {
        match tokens[at] {
            "{" => {
                blocks.push(at >= 2 && tokens[at - 2] == "mod");
                module.extend(blocks.last().filter(|is_module| **is_module).map(|_| tokens[at - 1].to_owned()));
            }
            "}" if blocks.pop() == Some(true) => drop(module.pop()),
            _ if begins_path(&tokens, at, &children) => {
                at = read_tree(&tokens, at, &module, &mut paths);
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    paths
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

fn segments(path: &str) -> Vec<String> {
    path.split("::").filter(|segment| !segment.is_empty()).map(str::to_owned).collect()
}

fn begins_path(tokens: &[&str], at: usize, children: &[&str]) -> bool {
    let is_root = ["crate", "self", "super"].contains(&tokens[at]) || children.contains(&tokens[at]);
    let before = |back: usize| at.checked_sub(back).map_or("", |at| tokens[at]);
    let is_visibility = before(1) == "in" && before(2) == "(";
    is_root && tokens.get(at + 1) == Some(&"::") && !["::", "."].contains(&before(1)) && !is_visibility
}

/// Reads the path or group at a token, which continues `base`; returns the index of the token after it.
fn read_tree(tokens: &[&str], at: usize, base: &[String], into: &mut Vec<String>) -> usize {
    let token = tokens.get(at).copied().unwrap_or("");
    if token == "{" {
        let mut at = at + 1;
        while at < tokens.len() && tokens[at] != "}" {
            at = if tokens[at] == "," { at + 1 } else { read_tree(tokens, at, base, into) };
        }
        return at + 1;
    }
    let mut path = base.to_vec();
    match token {
        "crate" => path.clear(),
        "super" => drop(path.pop()),
        "self" | "*" => {}
        name => path.push(name.to_owned()),
    }
    let continues = |next: &&str| *next == "{" || *next == "*" || is_word(next);
    if tokens.get(at + 1) == Some(&"::") && tokens.get(at + 2).is_some_and(continues) {
        return read_tree(tokens, at + 2, &path, into);
    }
    into.push(path.join("::"));
    if tokens.get(at + 1) == Some(&"as") { at + 3 } else { at + 1 }
}

/// Tokens outside `#[cfg(test)]` items, and the names of the modules declared by those items.
fn without_tests<'a>(tokens: &[&'a str]) -> (Vec<&'a str>, Vec<&'a str>) {
    const TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let (mut kept, mut modules, mut at) = (Vec::new(), Vec::new(), 0);
    while at < tokens.len() {
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
            return at; // the end of what the item stands in
        }
        if depth == 0 && [";", "}"].contains(token) {
            return at + 1;
        }
    }
    tokens.len()
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// Words, `::` and other signs one by one, without comments and literals.
fn tokens(code: &str) -> Vec<&str> {
    let (mut rest, mut tokens) = (code, Vec::new());
    while let Some(first) = rest.chars().next() {
        if let Some(length) = blank_length(rest) {
            rest = &rest[length..];
            continue;
        }
        let length = match length_while(rest, |c| c.is_alphanumeric() || c == '_') {
            0 if rest.starts_with("::") => 2,
            0 => first.len_utf8(),
            word => word,
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

/// Length of the white space, comment, literal or lifetime at the beginning, if one is there.
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

#[test]
fn relative_paths_become_absolute() {
    let code =
        "use super::app::App;\nuse super::super::session::{self, Turn};\nuse self::marks::Mark;\nuse crate::tui;";
    let paths = ["tui::app::App", "session", "session::Turn", "tui::update::marks::Mark", "tui"];
    assert_eq!(imports_of("tui/update/mod.rs", code), paths);
    assert_eq!(imports_of("tui/update.rs", code), paths, "a folder's file may stand beside the folder");
    assert_eq!(
        imports_of("tui/update/mouse.rs", "use super::{look, super::app as a};"),
        ["tui::update::look", "tui::app"]
    );
}

#[test]
fn groups_of_imports_are_read() {
    let code = "use crate::{\n    model::{A, b::{C as D, *}},\n    protocol::E,\n};\nuse crate::stream::F;";
    assert_eq!(imports_of("lib.rs", code), ["model::A", "model::b::C", "model::b", "protocol::E", "stream::F"]);
}

#[test]
fn paths_in_expressions_and_of_children_are_read() {
    let code =
        "mod keys;\nuse keys::Key;\nfn f(a: u8) -> super::A { keys::g(crate::b::C::<u8>::new()); std::fs::read(x) }";
    assert_eq!(imports_of("tui/x.rs", code), ["tui::x::keys::Key", "tui::A", "tui::x::keys::g", "b::C"]);
}

#[test]
fn visibility_and_words_in_text_are_no_imports() {
    let code = "pub(in crate::tui) fn f<'a>(x: &'a str) { let c = '\"'; // crate::a\n let s = r#\"crate::b \" super::c\"#; }\n/* crate::d */ const S: &str = \"\\\"crate::e\"; use crate::f;";
    assert_eq!(imports_of("tui/x.rs", code), ["f"]);
}

#[test]
fn inline_modules_are_one_level_deeper() {
    let code = "mod inner { fn f() { if x { super::g(); } } use super::super::h; }\nuse super::i;";
    assert_eq!(imports_of("tui/x.rs", code), ["tui::x::g", "tui::h", "tui::i"]);
}

#[test]
fn code_for_tests_is_left_out() {
    let code = "impl A {\n    #[cfg(test)]\n    #[must_use]\n    const B: [u8; 2] = [crate::a::A, 0];\n    fn f() { crate::b(); }\n}\n#[cfg(test)]\n#[cfg(unix)]\npub(crate) mod pty;\n#[cfg(test)]\nmod tests { use crate::c; }\nuse crate::d;";
    assert_eq!(imports_of("tui/mod.rs", code), ["b", "d"]);
    assert_eq!(test_modules_of("tui/mod.rs", code), ["tui::pty"]);
    assert_eq!(test_modules_of("lib.rs", "#[cfg(test)] mod tests;"), ["tests"]);
    assert_eq!(bare_code("#[cfg(test)] mod t;\nuse std::{fs, io::Read}; // candle"), "use std::{ fs , io::Read } ;");
}

#[test]
fn a_module_contains_its_parts_and_not_its_namesakes() {
    assert!(is_in("model::load::A", "model::load") && is_in("model", "model"));
    assert!(!is_in("model::loader::A", "model::load") && !is_in("model", "model::load"));
}
