//! Text fitted into a table cell.
//!
//! Invariant: the result is exactly as wide as asked, whatever goes in; what does not fit ends in
//! `…`.

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// Text cut to at most `width` columns.
pub(in crate::tui) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 0;
    for grapheme in text.graphemes(true) {
        if used + grapheme.width() + 1 > width {
            break;
        }
        used += grapheme.width();
        out.push_str(grapheme);
    }
    if width > 0 {
        out.push('…');
    }
    out
}

/// Text cut or padded to exactly `width` columns.
pub(in crate::tui) fn fit(text: &str, width: usize) -> String {
    let mut out = cut(text, width);
    let used = out.width();
    out.extend(std::iter::repeat_n(' ', width.saturating_sub(used)));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_exactly_as_wide_as_asked() {
        for text in ["", "a", "abcdef", "夕焼け", "👩‍👩‍👧👩‍👩‍👧", "e\u{301}e\u{301}"] {
            for width in 0..8 {
                assert_eq!(fit(text, width).width(), width, "{text:?} {width}");
            }
        }
        assert_eq!(cut("abcdef", 4), "abc…");
    }
}
