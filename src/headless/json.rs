//! JSON that is safe to print.
//!
//! Invariant: what is written reads back as the same value, and no character of it is one that a terminal
//! obeys: serde_json escapes control characters below U+0020 alone.

use std::io::{self, Write};

use serde::Serialize;

use draftscope_session::text::picture;

/// Writes a value on one line.
///
/// # Errors
/// When it has no JSON form, or nothing can be written.
pub fn write_json_line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    writeln!(out, "{}", escaped(&serde_json::to_string(value)?))
}

/// Writes a value for people to read.
///
/// # Errors
/// When it has no JSON form, or nothing can be written.
pub fn write_json_pretty(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    writeln!(out, "{}", escaped(&serde_json::to_string_pretty(value)?))
}

/// JSON with its characters that a terminal would obey escaped; outside strings there are none but line ends.
fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match picture(c).filter(|_| c != '\n') {
            Some(_) => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            None => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_escaped_and_reads_back() {
        let text = "a\u{9b}31mred\u{7f}\u{202e}\u{1b}[0m\n\u{feff}ä🙂";
        for pretty in [false, true] {
            let mut out = Vec::new();
            if pretty { write_json_pretty(&mut out, &[text]) } else { write_json_line(&mut out, &[text]) }.unwrap();
            let written = String::from_utf8(out).unwrap();
            assert!(written.chars().all(|c| c == '\n' || picture(c).is_none()), "{written:?}");
            assert!(written.contains("ä🙂"), "{written}");
            assert_eq!(serde_json::from_str::<[String; 1]>(&written).unwrap()[0], text);
        }
    }
}
