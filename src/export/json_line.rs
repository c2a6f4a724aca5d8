//! JSON on one line, without control characters.

use std::io::{self, Write};

use draftscope_session::text;

/// Writes a JSON value and a newline.
pub(super) fn write_json(out: &mut dyn Write, value: &impl serde::Serialize) -> io::Result<()> {
    writeln!(out, "{}", escaped(&serde_json::to_string(value)?))
}

/// Escapes all control characters in one line of JSON: serde_json escapes only those below U+0020.
pub(super) fn escaped(json: &str) -> String {
    json.chars().fold(String::with_capacity(json.len()), |mut out, c| {
        match text::picture(c) {
            Some(_) => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            None => out.push(c),
        }
        out
    })
}
