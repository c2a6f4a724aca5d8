//! Token bytes as text that is safe to print.
//!
//! A token may be half a character, so [`Joiner`] completes characters across tokens; and a token may contain an escape
//! sequence, so [`printable`] turns every control character into a picture. Invariant: nothing returned by
//! [`printable`], [`inline`] or [`quoted`] moves a terminal's cursor or changes its state. The front end does width and
//! wrapping.

use std::borrow::Cow;

use draftscope_protocol::Piece;

/// Joins bytes of successive tokens into whole characters.
///
/// A character that several tokens share belongs to the token that completes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Joiner {
    /// The start of a character: at most 3 bytes.
    pending: Vec<u8>,
}

impl Joiner {
    /// Adds a token's bytes; returns the text that is complete now. Bytes that can never become a character become
    /// U+FFFD.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let mut out = String::new();
        let mut rest = self.pending.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    out.push_str(text);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (good, bad) = rest.split_at(error.valid_up_to());
                    out.push_str(&String::from_utf8_lossy(good));
                    let Some(len) = error.error_len() else {
                        rest = bad;
                        break;
                    };
                    out.push(char::REPLACEMENT_CHARACTER);
                    rest = &bad[len..];
                }
            }
        }
        self.pending = rest.to_vec();
        out
    }

    /// Whether a character has begun and is incomplete.
    #[must_use]
    pub fn is_mid_character(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Drops a character that was never completed.
    pub fn finish(&mut self) -> String {
        if std::mem::take(&mut self.pending).is_empty() {
            String::new()
        } else {
            char::REPLACEMENT_CHARACTER.to_string()
        }
    }
}

/// The picture shown instead of a control character; `None` for any other.
#[must_use]
pub fn picture(c: char) -> Option<char> {
    Some(match c {
        '\n' => '⏎',
        '\t' => '⇥',
        '\u{0}'..='\u{1f}' => char::from_u32(0x2400 + c as u32)?,
        '\u{7f}' => '␡',
        '\u{80}'..='\u{9f}'
        | '\u{61c}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' => char::REPLACEMENT_CHARACTER,
        _ => return None,
    })
}

/// Text with every control character as a picture, except that a newline stays one.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    pictured(text, |c| c == '\n')
}

/// Text on one line: every control character as a picture, newlines too.
#[must_use]
pub fn one_line(text: &str) -> Cow<'_, str> {
    pictured(text, |_| false)
}

fn pictured(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    let shown = |c: char| if stays(c) { None } else { picture(c) };
    if text.chars().all(|c| shown(c).is_none()) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| shown(c).unwrap_or(c)).collect())
}

/// A token for a table cell: on one line, with outer spaces visible as `·`.
#[must_use]
pub fn inline(piece: &Piece) -> String {
    if piece.bytes.is_empty() {
        return if piece.id.is_unknown() { "?".to_owned() } else { format!("#{}", piece.id) };
    }
    let text = legible(&piece.bytes);
    let text = one_line(&text);
    let lead = text.len() - text.trim_start_matches(' ').len();
    let inner = text.trim_matches(' ');
    let trail = text.len() - lead - inner.len();
    format!("{}{inner}{}", "·".repeat(lead), "·".repeat(trail))
}

/// A token for a sentence: as in a table, in quotes.
#[must_use]
pub fn quoted(piece: &Piece) -> String {
    if piece.bytes.is_empty() {
        return if piece.id.is_unknown() {
            "a token (id not reported)".to_owned()
        } else {
            format!("token {}", piece.id)
        };
    }
    format!("'{}'", inline(piece))
}

/// Text with incomplete characters as hex, `<F0 9F>`, so that tokens with different parts of one character look
/// different.
fn legible(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let (mut text, mut part) = (String::new(), Vec::new());
    for chunk in bytes.utf8_chunks() {
        if !chunk.valid().is_empty() {
            text.push_str(&hex(&std::mem::take(&mut part)));
            text.push_str(chunk.valid());
        }
        part.extend_from_slice(chunk.invalid());
    }
    text.push_str(&hex(&part));
    Cow::Owned(text)
}

fn hex(bytes: &[u8]) -> String {
    let digits: Vec<_> = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
    if digits.is_empty() { String::new() } else { format!("<{}>", digits.join(" ")) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use draftscope_protocol::TokenId;

    #[test]
    fn halves_of_a_character_meet_in_the_token_that_completes_it() {
        let emoji = "🦀".as_bytes();
        let mut joiner = Joiner::default();
        assert_eq!(joiner.push(b"a"), "a");
        assert_eq!(joiner.push(&emoji[..1]), "");
        assert_eq!(joiner.push(&emoji[1..3]), "");
        assert!(joiner.is_mid_character());
        assert_eq!(joiner.push(&[emoji[3], b'!']), "🦀!");
        assert_eq!(joiner.finish(), "");
    }

    #[test]
    fn what_never_becomes_a_character_is_replaced() {
        let mut joiner = Joiner::default();
        assert_eq!(joiner.push(&[0xff, b'x', 0xe2]), "\u{fffd}x");
        assert_eq!(joiner.push(b"y"), "\u{fffd}y");
        assert_eq!(joiner.push(&[0xf0, 0x9f]), "");
        assert_eq!(joiner.finish(), "\u{fffd}");
    }

    #[test]
    fn escape_sequences_become_pictures() {
        assert_eq!(printable("a\u{1b}[31m\nb\r\t\u{7f}\u{9b}"), "a␛[31m\nb␍⇥␡\u{fffd}");
        assert_eq!(one_line("a\nb"), "a⏎b");
        assert_eq!(inline(&Piece::new(TokenId(1), " the ")), "·the·");
        assert_eq!(inline(&Piece::new(TokenId(1), "  ")), "··");
        assert_eq!(inline(&Piece::new(TokenId(7), "")), "#7");
    }

    #[test]
    fn marks_that_reorder_a_line_become_pictures() {
        // all of Unicode's Bidi_Control, the Arabic letter mark (U+061C) first
        for c in
            "\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}".chars()
        {
            let text = format!("a{c}b");
            for shown in [printable(&text), one_line(&text), inline(&Piece::new(TokenId(7), text.as_str())).into()] {
                assert_eq!(shown, "a\u{fffd}b", "U+{:04X}", u32::from(c));
            }
            assert_eq!(picture(c), Some(char::REPLACEMENT_CHARACTER), "U+{:04X}", u32::from(c));
        }
        assert_eq!(printable("\u{645}\u{200d}👩\u{200d}🚀"), "\u{645}\u{200d}👩\u{200d}🚀", "joiners only join");
    }

    #[test]
    fn parts_of_a_character_can_be_told_apart() {
        let piece = |bytes: &[u8]| Piece::new(TokenId(1), bytes);
        assert_eq!(inline(&piece(b" \xf0\x9f")), "·<F0 9F>");
        assert_eq!(quoted(&piece(b"\x98\x80!\xe2")), "'<98 80>!<E2>'");
        assert_eq!(quoted(&piece("🦀".as_bytes())), "'🦀'");
    }

    proptest! {
        #[test]
        fn joining_equals_decoding_at_once(bytes in proptest::collection::vec(any::<u8>(), 0..64), cut in 1usize..5) {
            let mut joiner = Joiner::default();
            let mut joined: String = bytes.chunks(cut).map(|chunk| joiner.push(chunk)).collect();
            joined.push_str(&joiner.finish());
            prop_assert_eq!(joined, String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn nothing_printable_controls_a_terminal(text in any::<String>()) {
            prop_assert!(printable(&text).chars().all(|c| c == '\n' || !c.is_control()));
            prop_assert!(one_line(&text).chars().all(|c| !c.is_control()));
        }
    }
}
