//! Text fitted into a table cell, and lines into an area.
//!
//! Invariant: the result is as wide as asked, whatever goes in; what does not fit ends in `…`.

use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// A style for what stands around a word: spaces and marks have no line through or under them.
pub(crate) fn undecorated(style: Style) -> Style {
    style.remove_modifier(Modifier::CROSSED_OUT | Modifier::UNDERLINED)
}

/// Text cut to at most `width` columns.
pub(crate) fn cut(text: &str, width: usize) -> String {
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
pub(crate) fn fit(text: &str, width: usize) -> String {
    let mut out = cut(text, width);
    let used = out.width();
    out.extend(std::iter::repeat_n(' ', width.saturating_sub(used)));
    out
}

/// Lines cut to a size; one that is too long, and the last one that fits where more follow, ends in `…`.
pub(crate) fn cut_lines(mut lines: Vec<Line<'static>>, width: u16, height: u16) -> Vec<Line<'static>> {
    let is_over = lines.len() > usize::from(height)
        && lines[height.into()..].iter().any(|line| !line.to_string().trim().is_empty());
    lines.truncate(height.into());
    lines.iter_mut().for_each(|line| cut_line(line, width.into()));
    if let Some(last) = lines.last_mut().filter(|_| is_over) {
        end_in_dots(last, width.into());
    }
    lines
}

/// Cuts a line to at most `width` columns; what is left of one that is too long ends in `…`.
pub(crate) fn cut_line(line: &mut Line<'static>, width: usize) {
    if line.to_string().trim_end().width() <= width {
        return;
    }
    let (mut used, last) = (0, line.spans.len().saturating_sub(1));
    for (at, span) in line.spans.iter_mut().enumerate() {
        let room = width.saturating_sub(used);
        if span.width() > room || (span.width() == room && at < last) {
            // a character more than fits makes the cut
            span.content = cut(&format!("{}  ", span.content), room).into();
            line.spans.truncate(at + 1);
            return;
        }
        used += span.width();
    }
}

/// Says at the end of a line that more follows.
fn end_in_dots(line: &mut Line<'static>, width: usize) {
    let style = line.spans.last().map_or(line.style, |span| span.style);
    while let Some(last) = line.spans.last_mut() {
        last.content = last.content.trim_end().to_owned().into();
        if !last.content.is_empty() {
            break;
        }
        line.spans.pop();
    }
    if !line.to_string().ends_with('…') {
        line.spans.push(Span::styled(" …", style));
        cut_line(line, width);
    }
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

    #[test]
    fn lines_that_do_not_fit_say_so() {
        let shown = |texts: &[&[&str]], width, height| -> Vec<String> {
            let lines = texts.iter().map(|spans| spans.iter().map(|text| Span::raw((*text).to_owned())).collect());
            cut_lines(lines.collect(), width, height).iter().map(ToString::to_string).collect()
        };
        assert_eq!(shown(&[&["abc", "def"], &["g"]], 6, 2), ["abcdef", "g"], "all of it fits");
        assert_eq!(shown(&[&["abc", "def"]], 5, 1), ["abcd…"]);
        assert_eq!(shown(&[&["abc", "def"]], 3, 1), ["ab…"]);
        assert_eq!(shown(&[&["ab"], &["cd"]], 9, 1), ["ab …"], "a line is left out");
        assert_eq!(shown(&[&["ab "], &["cd"]], 3, 1), ["ab…"]);
        assert_eq!(shown(&[&["abc"], &["cd"]], 3, 1), ["ab…"]);
        assert_eq!(shown(&[&["abc"], &["", " "]], 3, 1), ["abc"], "what is left out is blank");
        assert_eq!(shown(&[&["abc"]], 0, 0), Vec::<String>::new());
    }
}
