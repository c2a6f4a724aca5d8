//! Makes Markdown that is still being written complete.
//!
//! Invariant: the result is a beginning of the text, with missing closing marks added. Marks whose meaning depends on
//! the next characters are left out until these arrive.

use std::borrow::Cow;

/// Marks that may become others, or end what they seem to begin.
const MARKS: [char; 5] = ['*', '_', '`', '~', '\\'];

/// What a line without a meaning yet consists of: a bullet, a number, a fence, a rule, the underline of a heading.
const LINE_MARKS: &str = "-=*#+`~_>|.)0123456789 ";

/// The text without half-written marks, and with open ones closed.
pub(super) fn closed(text: &str) -> Cow<'_, str> {
    let line = text.rfind('\n').map_or(0, |at| at + 1);
    let is_fenced = is_in_fence(&text[..line]);
    let last = &text[line..];
    let text = if is_pending(last, is_fenced) { &text[..line] } else { text };
    if is_fenced {
        return text.into();
    }
    let text = text.trim_end_matches(MARKS);
    let missing = missing(&text[block_start(text)..]);
    if missing.is_empty() { text.into() } else { format!("{}{missing}", text.trim_end()).into() }
}

/// Whether the text ends within a fenced block.
fn is_in_fence(text: &str) -> bool {
    let mut open: Option<(char, usize)> = None;
    for line in text.lines() {
        let line = line.trim_start_matches([' ', '>']);
        let Some(mark) = line.chars().next().filter(|c| ['`', '~'].contains(c)) else {
            continue;
        };
        let len = line.chars().take_while(|c| *c == mark).count();
        let rest = &line[len..];
        match open {
            Some((of, least)) if mark == of && len >= least && rest.trim().is_empty() => open = None,
            None if len >= 3 && !(mark == '`' && rest.contains('`')) => open = Some((mark, len)),
            _ => {}
        }
    }
    open.is_some()
}

/// Whether the meaning of the last line is still open.
fn is_pending(line: &str, is_fenced: bool) -> bool {
    let marks = if is_fenced { "`~ " } else { LINE_MARKS };
    !line.is_empty() && line.chars().all(|c| marks.contains(c)) || (!is_fenced && line.trim_start().starts_with("```"))
}

/// Where the last block of a text may begin: marks do not reach across blocks.
fn block_start(text: &str) -> usize {
    let mut start = 0;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let words = line.trim_start_matches([' ', '>']);
        let number = words.trim_start_matches(|c: char| c.is_ascii_digit());
        let is_item = ["- ", "* ", "+ ", "#"].iter().any(|mark| words.starts_with(mark))
            || (number.len() < words.len() && [". ", ") "].iter().any(|mark| number.starts_with(mark)));
        let is_end = words.trim().is_empty() || words.starts_with("```") || words.starts_with("~~~");
        if is_item {
            start = at;
        }
        at += line.len();
        if is_end {
            start = at;
        }
    }
    start
}

/// Marks that close what is open at the end of a block, innermost first.
fn missing(block: &str) -> String {
    let mut open: Vec<(char, usize)> = Vec::new();
    let mut before = ' ';
    let mut rest = block;
    while let Some(c) = rest.chars().next() {
        let len = if MARKS.contains(&c) { rest.chars().take_while(|other| *other == c).count() } else { 1 };
        match c {
            '\\' => {
                let skipped = rest.chars().nth(1).map_or(0, char::len_utf8);
                rest = &rest[1 + skipped..];
                before = 'a';
                continue;
            }
            '`' => {
                rest = &rest[len..];
                let Some(end) = code_end(rest, len) else {
                    return closing("`".repeat(len), &open);
                };
                rest = &rest[end..];
                before = 'a';
                continue;
            }
            '*' | '_' => {
                let after = rest[len..].chars().next().unwrap_or(' ');
                emphasis(&mut open, (c, len), before, after);
            }
            _ => {}
        }
        rest = &rest[c.len_utf8() * len..];
        before = c;
    }
    let link =
        block.rfind("](").filter(|at| !block[*at..].contains(')') && !block[*at..].contains(char::is_whitespace));
    closing(if link.is_some() { ")".to_owned() } else { String::new() }, &open)
}

fn closing(mut marks: String, open: &[(char, usize)]) -> String {
    for (mark, len) in open.iter().rev() {
        marks.extend(std::iter::repeat_n(*mark, *len));
    }
    marks
}

/// Where a span of code opened by so many marks ends.
fn code_end(text: &str, len: usize) -> Option<usize> {
    let mut at = 0;
    while let Some(found) = text[at..].find('`') {
        let start = at + found;
        let run = text[start..].bytes().take_while(|byte| *byte == b'`').count();
        at = start + run;
        if run == len {
            return Some(at);
        }
    }
    None
}

/// A run of marks opens or closes. One within a word does neither: it is more often a product or a name.
fn emphasis(open: &mut Vec<(char, usize)>, (mark, mut len): (char, usize), before: char, after: char) {
    let (ends_word, begins_word) = (!before.is_whitespace(), !after.is_whitespace());
    while ends_word && len > 0 {
        let Some((_, left)) = open.last_mut().filter(|(of, _)| *of == mark) else {
            break;
        };
        let closes = len.min(*left);
        *left -= closes;
        len -= closes;
        if *left == 0 {
            open.pop();
        }
    }
    if len > 0 && len <= 3 && begins_word && !before.is_alphanumeric() {
        open.push((mark, len));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_is_closed_and_what_is_half_written_waits() {
        for (text, whole) in [
            ("a **b", "a **b**"),
            ("a **b ", "a **b**"),
            ("a **b *c", "a **b *c***"),
            ("a **b**", "a **b**"),
            ("a *", "a "),
            ("a `b c", "a `b c`"),
            ("a ``b`", "a ``b``"),
            ("a 2*3", "a 2*3"),
            ("a *b* c", "a *b* c"),
            ("a\n-", "a\n"),
            ("a\n- b", "a\n- b"),
            ("a\n1.", "a\n"),
            ("a\n```ru", "a\n"),
            ("```\nx *y", "```\nx *y"),
            ("```\nx\n``", "```\nx\n"),
            ("**a\n\nb", "**a\n\nb"),
            ("- **a\n- b", "- **a\n- b"),
            ("[a](htt", "[a](htt)"),
            ("\\*a", "\\*a"),
            ("", ""),
        ] {
            assert_eq!(closed(text), whole, "{text:?}");
        }
    }
}
