//! Names of written files that a terminal opens on a click (OSC 8).
//!
//! Invariant: only a terminal gets the escapes; terminals without links show the name alone.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::path::Path;

use anyhow::Result;
use draftscope::session::text::printable;

/// Prints the path of a file that was written, after some words, on standard output.
pub(crate) fn print_path(words: &str, path: &Path) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let is_terminal = out.is_terminal() && has_links();
    writeln!(out, "{words}{}", linked(path, is_terminal))?;
    Ok(out.flush()?)
}

/// The same on standard error, with the program's name.
pub(crate) fn say_path(words: &str, path: &Path) {
    let mut out = std::io::stderr().lock();
    let is_terminal = out.is_terminal() && has_links();
    let _ = writeln!(out, "draftscope: {words}{}", linked(path, is_terminal)); // there is no other place to report it
}

/// Whether escapes may be written at all.
fn has_links() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term != "dumb" && term != "linux")
}

/// The path as text, and as a link if it has an address.
fn linked(path: &Path, is_terminal: bool) -> String {
    let shown = printable(&path.display().to_string()).into_owned();
    match std::path::absolute(path) {
        Ok(absolute) if is_terminal => format!("\x1b]8;;{}\x1b\\{shown}\x1b]8;;\x1b\\", address(&absolute)),
        _ => shown,
    }
}

/// The `file://` address of an absolute path. All bytes that addresses do not have as they are become `%XX`, so that
/// nothing in a name ends the escape.
fn address(path: &Path) -> String {
    let mut text = "file://".to_owned();
    let path = path.to_string_lossy().replace('\\', "/");
    if !path.starts_with('/') {
        text.push('/');
    }
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b':' => text.push(byte.into()),
            _ => drop(write!(text, "%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_gets_the_name_alone() {
        assert_eq!(linked(Path::new("a b.md"), false), "a b.md");
        assert_eq!(linked(Path::new("a\u{1b}[2J.md"), false), "a␛[2J.md");
    }

    #[cfg(unix)]
    #[test]
    fn a_terminal_gets_an_address_that_ends_where_the_name_does() {
        assert_eq!(
            linked(Path::new("/tmp/a b.md"), true),
            "\x1b]8;;file:///tmp/a%20b.md\x1b\\/tmp/a b.md\x1b]8;;\x1b\\"
        );
        let hostile = linked(Path::new("/tmp/\x1b\\\x07é"), true);
        assert!(hostile.starts_with("\x1b]8;;file:///tmp/%1B/%07%C3%A9\x1b\\"), "{hostile:?}");
        assert_eq!(hostile.matches('\x1b').count(), 4, "{hostile:?}");
    }
}
