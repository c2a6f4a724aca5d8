//! A screen without box, block and braille glyphs, for terminals and fonts that lack them.
//!
//! Invariant: every glyph that the program draws itself has an ASCII replacement of the same width. The whole screen is
//! searched, so the same glyphs in the user's and the model's text become ASCII too; all other characters stay, and
//! recordings contain the original text.

use ratatui::buffer::Buffer;

/// The visible space of a token; between two words with spaces around it, a separator.
const SPACE: &str = "·";

/// The replacement of a separator.
const SEPARATOR: &str = "-";

/// Signs with a meaning, each with a replacement that stands for nothing else.
const SIGNS: &[(&str, &str)] = &[
    ("✓", "="),
    ("✚", "+"),
    ("↻", "~"),
    ("✗", "!"),
    ("○", "%"),
    ("◌", "?"),
    ("▪", ";"),
    ("≠", "/"),
    ("■", "]"),
    ("§", ")"),
    ("⊘", "["),
    ("⏎", "$"),
    ("⇥␛␡", "\\"),
    (SPACE, "_"),
    ("…", "."),
    ("★", "*"),
    ("✎", "&"),
    ("⑂", "Y"),
    ("●", "O"),
    ("‖", "\""),
    ("×", "x"),
    ("÷", ":"),
    ("◆", "D"),
    ("¬", "N"),
];

/// Lines, shades, points and arrows: similar ones share a replacement.
const DRAWING: &[(&str, &str)] = &[
    ("─═┈┄╌⎯┌┐┘┬┴┼╭╮╯┏┓┛−–—", "-"),
    ("│┃║├┤▏┿", "|"),
    ("└╰┗", "`"),
    ("━╸█▉▊▋▇▆", "#"),
    ("▓", "@"),
    ("▌▍▅▄▒", "("),
    ("▎▃▂▁░", ","),
    ("•", "o"),
    ("❯▸▶›→↳≥", ">"),
    ("‹←◀≤", "<"),
    ("↑", "^"),
    ("↓", "v"),
    ("\u{2019}", "'"),
];

/// Replaces the program's own glyphs.
pub(crate) fn replace(buffer: &mut Buffer) {
    for at in 0..buffer.content.len() {
        if buffer.content[at].symbol() == "±" {
            plus_minus(buffer, at);
        }
        let plain = if is_separator(buffer, at) { Some(SEPARATOR) } else { counterpart(buffer.content[at].symbol()) };
        if let Some(plain) = plain {
            buffer.content[at].set_symbol(plain);
        }
    }
}

/// `1.6× ±0.1` becomes `1.6x+-0.1`: the sign takes the cell of the blank before it.
fn plus_minus(buffer: &mut Buffer, at: usize) {
    if let Some(before) = at.checked_sub(1).filter(|before| buffer.content[*before].symbol() == " ") {
        buffer.content[before].set_symbol("+");
    }
    buffer.content[at].set_symbol("-");
}

/// The replacement of a glyph of the program; `None` for other text.
fn counterpart(symbol: &str) -> Option<&'static str> {
    if symbol.is_ascii() {
        return None;
    }
    if symbol.chars().all(|c| ('\u{2801}'..='\u{28ff}').contains(&c)) {
        return Some("o"); // dots of a plot
    }
    let known = SIGNS.iter().chain(DRAWING).find(|(glyphs, _)| glyphs.contains(symbol)).map(|(_, plain)| *plain);
    known.or((symbol == "\u{2800}").then_some(" "))
}

/// Whether the dot at a place is a separator, as between two numbers: a word and one space on either side.
fn is_separator(buffer: &Buffer, at: usize) -> bool {
    let is_blank =
        |at: Option<usize>| at.and_then(|at| buffer.content.get(at)).is_some_and(|cell| cell.symbol() == " ");
    let is_word = |at: Option<usize>| at.is_some_and(|at| at < buffer.content.len()) && !is_blank(at);
    buffer.content[at].symbol() == SPACE
        && is_blank(at.checked_sub(1))
        && is_blank(Some(at + 1))
        && is_word(at.checked_sub(2))
        && is_word(Some(at + 2))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::look::fate;
    use draftscope_session::{Fate, Provenance};

    #[test]
    fn one_sign_has_one_meaning() {
        let mut taken = HashSet::new();
        for (glyphs, plain) in DRAWING {
            assert!(taken.insert(plain), "{glyphs} and another glyph become {plain}");
        }
        for (sign, plain) in SIGNS {
            assert!(taken.insert(plain), "{sign} and another glyph become {plain}");
        }
    }

    #[test]
    fn a_dot_between_words_is_not_a_space_of_a_token() {
        let shown = |text: &str| {
            let mut buffer = Buffer::with_lines([text]);
            replace(&mut buffer);
            buffer.content.iter().map(ratatui::buffer::Cell::symbol).collect::<String>()
        };
        assert_eq!(shown("18 tokens · 9 ms · 2×"), "18 tokens - 9 ms - 2x");
        assert_eq!(shown("1.61× ±0.01"), "1.61x+-0.01");
        assert_eq!(shown("✓·the 0.60  · 0.31"), "=_the 0.60  _ 0.31");
    }

    #[test]
    fn every_fate_has_a_sign_of_its_own() {
        let fates = [
            Fate::Committed(Provenance::Plain),
            Fate::Committed(Provenance::Accepted),
            Fate::Committed(Provenance::Recovered),
            Fate::Committed(Provenance::Bonus),
            Fate::Rejected,
            Fate::NotReached,
            Fate::Pending,
            Fate::Refused,
        ];
        let signs = fates.map(fate::sign).into_iter().chain([fate::DEPARTED, fate::FORCED, fate::UNDRAFTABLE]);
        let plain: HashSet<_> =
            signs.map(|sign| SIGNS.iter().find(|(glyph, _)| *glyph == sign).map(|(_, plain)| *plain)).collect();
        assert_eq!((plain.len(), plain.contains(&None)), (fates.len() + 3, false), "{plain:?}");
    }
}
