//! Finds the modules of this crate that a source file names, as absolute paths.
//!
//! `crate::…`, `self::…`, `super::…` and paths that begin with a module that the same file declares or imports are
//! resolved. Comments, literals and what only tests compile are not read.

use std::collections::BTreeMap;

use super::sources::{bare_code, is_in, module_of, test_modules_of, tokens, without_tests};

/// Absolute paths of the items of this crate that a file names, in order: `tui::app::App` for
/// `use super::app::App` in `tui/search.rs`. Each leaf of a group is a separate path.
pub(crate) fn imports_of(file: &str, code: &str) -> Vec<String> {
    let (tokens, _) = without_tests(&tokens(code));
    let children: Vec<_> = tokens.windows(2).filter(|pair| pair[0] == "mod").map(|pair| pair[1]).collect();
    let imported = imported_names(file, &tokens, &children);
    read_paths(file, &tokens, &children, &imported).into_iter().map(|(_, path)| path).collect()
}

/// Names that the file's `use` declarations bring into scope, and their paths.
fn imported_names(file: &str, tokens: &[&str], children: &[&str]) -> Names {
    let paths = read_paths(file, tokens, children, &Names::new());
    paths.into_iter().filter_map(|(name, path)| Some((name?, path))).collect()
}

/// The paths of a file, each with the name that it has there if a `use` declares it.
fn read_paths(file: &str, tokens: &[&str], children: &[&str], imported: &Names) -> Vec<Named> {
    let mut module: Vec<_> = segments(&module_of(file));
    let mut blocks = Vec::new(); // true: the block of an inline module
    let (mut paths, mut at) = (Vec::new(), 0);
    while at < tokens.len() {
        let is_used = at > 0 && tokens[at - 1] == "use";
        match tokens[at] {
            "{" => {
                blocks.push(at >= 2 && tokens[at - 2] == "mod");
                module.extend(blocks.last().filter(|is_module| **is_module).map(|_| tokens[at - 1].to_owned()));
            }
            "}" if blocks.pop() == Some(true) => drop(module.pop()),
            _ if begins_path(tokens, at, children) => {
                let before = paths.len();
                at = read_tree(tokens, at, &module, &mut paths);
                paths[before..].iter_mut().filter(|_| !is_used).for_each(|(name, _)| *name = None);
                continue;
            }
            name if imported.contains_key(name) && is_first_of_path(tokens, at) => {
                let mut found = Vec::new();
                at = read_tree(tokens, at + 2, &segments(&imported[name]), &mut found);
                paths.extend(found.into_iter().map(|(_, path)| (None, path)));
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    paths
}

/// A path and the name that a `use` gives it in its file.
type Named = (Option<String>, String);

/// Paths by the name that they have in a file.
type Names = BTreeMap<String, String>;

fn segments(path: &str) -> Vec<String> {
    path.split("::").filter(|segment| !segment.is_empty()).map(str::to_owned).collect()
}

fn begins_path(tokens: &[&str], at: usize, children: &[&str]) -> bool {
    let is_root = ["crate", "self", "super"].contains(&tokens[at]) || children.contains(&tokens[at]);
    let before = |back: usize| at.checked_sub(back).map_or("", |at| tokens[at]);
    let is_visibility = before(1) == "in" && before(2) == "(";
    is_root && is_first_of_path(tokens, at) && !is_visibility
}

/// Whether a path of several segments begins at a token.
fn is_first_of_path(tokens: &[&str], at: usize) -> bool {
    let before = at.checked_sub(1).map_or("", |at| tokens[at]);
    let goes_on = |next: &&str| *next == "{" || *next == "*" || is_word(next);
    tokens.get(at + 1) == Some(&"::") && tokens.get(at + 2).is_some_and(goes_on) && !["::", "."].contains(&before)
}

/// Reads the path or group at a token, which continues `base`; returns the index of the token after it.
fn read_tree(tokens: &[&str], at: usize, base: &[String], into: &mut Vec<Named>) -> usize {
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
    let is_renamed = tokens.get(at + 1) == Some(&"as");
    let name = if is_renamed { tokens.get(at + 2).map(|name| (*name).to_owned()) } else { path.last().cloned() };
    into.push((name.filter(|_| token != "*"), path.join("::")));
    if is_renamed { at + 3 } else { at + 1 }
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphanumeric() || c == '_')
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
fn paths_that_begin_with_an_imported_name_are_read() {
    let code = "use crate::a;\nuse super::b::{self, C as D};\nuse std::fs;\nfn f() { a::x::g(b::y(), D::new(), fs::read()); s.a::<u8>() }";
    let named = ["a", "tui::b", "tui::b::C", "a::x::g", "tui::b::y", "tui::b::C::new"];
    assert_eq!(imports_of("tui/x.rs", code), named);
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
    let code = "impl A {\n    #[cfg(test)]\n    #[must_use]\n    const B: [u8; 2] = [crate::a::A, 0];\n    fn f() { crate::b(); }\n}\n#[cfg(test)]\n#[cfg(unix)]\npub(crate) mod pty;\n#[cfg(test)]\nmod tests { use crate::c; }\n#[cfg_attr(test, f([1], = crate::e::g))]\nuse crate::d;";
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
