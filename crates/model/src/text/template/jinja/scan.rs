//! What Jinja makes of a template's text before it parses it, where minijinja differs.
//!
//! All line ends become `\n`; `{% raw %}` keeps the line end that follows it; string literals know all of Python's
//! escapes; `{% generation %}`, with which `transformers` marks answers of a training text, becomes a block that
//! always runs.

use std::fmt::Write as _;

/// An escape that minijinja rejects, in place of one that is wrong or not supported.
const WRONG_ESCAPE: &str = "\\u____";

/// The text of a template as minijinja has to read it.
pub(super) fn normalized(source: &str) -> String {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut out = String::with_capacity(source.len());
    let mut rest = source.as_str();
    while let Some(at) = rest.find(['{']) {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        let length = match tag.as_bytes().get(1) {
            Some(b'#') => copy(&mut out, tag, tag.find("#}").map_or(tag.len(), |end| end + 2)),
            Some(b'{') => expression(&mut out, tag, "}}"),
            Some(b'%') => block(&mut out, tag),
            _ => copy(&mut out, tag, 1),
        };
        rest = &tag[length..];
    }
    out.push_str(rest);
    out
}

/// Copies the first bytes, and returns their number.
fn copy(out: &mut String, from: &str, length: usize) -> usize {
    out.push_str(&from[..length]);
    length
}

/// Copies a tag from its two first bytes up to `end`, outside of strings and brackets; returns its length.
fn expression(out: &mut String, tag: &str, end: &str) -> usize {
    let mut at = copy(out, tag, 2);
    let mut open = 0_usize;
    while at < tag.len() {
        let rest = &tag[at..];
        if open == 0 && rest.starts_with(end) {
            return at + copy(out, rest, end.len());
        }
        let Some(next) = rest.chars().next() else { break };
        match next {
            '"' | '\'' => {
                at += string(out, rest);
                continue;
            }
            '(' | '[' | '{' => open += 1,
            ')' | ']' | '}' => open = open.saturating_sub(1),
            _ => {}
        }
        out.push(next);
        at += next.len_utf8();
    }
    tag.len()
}

/// Copies a block tag and, of `raw`, what it contains; returns the length.
fn block(out: &mut String, tag: &str) -> usize {
    let body = tag[2..].trim_start_matches(['-', '+']).trim_start();
    let lead = tag.len() - body.len();
    let word: String = body.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let after = &body[word.len()..];
    let end = after.trim_start().trim_start_matches(['-', '+']);
    let closes = end.starts_with("%}");
    let length = tag.len() - end.len() + 2;
    match word.as_str() {
        "generation" | "endgeneration" if closes => {
            out.push_str(&tag[..lead]);
            out.push_str(if word == "generation" { "if true" } else { "endif" });
            copy(out, after, length - lead - word.len());
            length
        }
        "raw" if closes => {
            copy(out, tag, length);
            if tag[length..].starts_with('\n') && !tag[..length].ends_with("-%}") {
                out.push('\n'); // the one that minijinja drops
            }
            let inside = &tag[length..];
            length + copy(out, inside, end_of_raw(inside))
        }
        _ => expression(out, tag, "%}"),
    }
}

/// Where the tag `endraw` begins.
fn end_of_raw(text: &str) -> usize {
    let is_end = |tag: &str| tag[2..].trim_start_matches(['-', '+']).trim_start().starts_with("endraw");
    text.match_indices("{%").map(|(at, _)| at).find(|at| is_end(&text[*at..])).unwrap_or(text.len())
}

/// Copies a string literal with escapes that minijinja reads as Python does; returns its length.
fn string(out: &mut String, text: &str) -> usize {
    let mut chars = text.char_indices();
    let Some((_, mark)) = chars.next() else { return 0 };
    out.push(mark);
    while let Some((at, c)) = chars.next() {
        if c != '\\' {
            out.push(c);
            if c == mark {
                return at + c.len_utf8();
            }
            continue;
        }
        let Some((_, escaped)) = chars.next() else { break };
        match escaped {
            '\n' => {}
            'a' => out.push('\u{7}'),
            'v' => out.push('\u{b}'),
            '/' => out.push_str("\\\\/"),
            'N' => out.push_str(WRONG_ESCAPE), // there is no table of names
            'U' => {
                let digits: String = chars.by_ref().take(8).map(|(_, digit)| digit).collect();
                out.push_str(&code_point(&digits).unwrap_or_else(|| WRONG_ESCAPE.to_owned()));
            }
            other => {
                out.push('\\');
                out.push(other);
            }
        }
    }
    text.len()
}

/// A character from eight hexadecimal digits, as an escape of two units where minijinja needs one.
fn code_point(digits: &str) -> Option<String> {
    let c = char::from_u32(u32::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 8)?)?;
    let mut out = String::new();
    for unit in c.encode_utf16(&mut [0; 2]) {
        write!(out, "\\u{unit:04x}").ok()?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_as_jinja_reads_it() {
        for (source, read) in [
            ("a\r\nb\rc\n", "a\nb\nc\n"),
            ("{{ 'a\r\nb' }}\r\n", "{{ 'a\nb' }}\n"),
            ("{% raw %}\n{{ '\\a' }}{% endraw %}\n", "{% raw %}\n\n{{ '\\a' }}{% endraw %}\n"),
            ("{%- raw -%}\n{% endraw %}", "{%- raw -%}\n{% endraw %}"),
            (r#"{{ '\U0001f600' ~ "\a\/\n" }}"#, "{{ '\\ud83d\\ude00' ~ \"\u{7}\\\\/\\n\" }}"),
            (r"{{ '\N{BULLET}' }}", r"{{ '\u____{BULLET}' }}"),
            (r"{{ '\U12' }}", r"{{ '\u____"),
            ("{# '\\a #}'\\a'", "{# '\\a #}'\\a'"),
            ("{{ {'a': {'\\a': 1}} }}'\\a'", "{{ {'a': {'\u{7}': 1}} }}'\\a'"),
            ("{%- generation +%}a{%endgeneration%}", "{%- if true +%}a{%endif%}"),
            ("{% generations %}{ {", "{% generations %}{ {"),
            ("{% if '%}' %}\\a{", "{% if '%}' %}\\a{"),
        ] {
            assert_eq!(normalized(source), read, "{source}");
        }
    }
}
