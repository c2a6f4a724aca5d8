//! Digits three rows high, for the one number of a page.
//!
//! Invariant: all three rows have the same width; a character without a form is left out.

use unicode_width::UnicodeWidthStr;

/// Rows of a number.
pub(crate) const ROWS: usize = 3;

/// Points of a character, five rows of them.
type Points = [&'static str; 5];

const FORMS: [(char, Points); 14] = [
    ('0', ["####", "#  #", "#  #", "#  #", "####"]),
    ('1', ["## ", " # ", " # ", " # ", "###"]),
    ('2', ["####", "   #", "####", "#   ", "####"]),
    ('3', ["####", "   #", " ###", "   #", "####"]),
    ('4', ["#  #", "#  #", "####", "   #", "   #"]),
    ('5', ["####", "#   ", "####", "   #", "####"]),
    ('6', ["####", "#   ", "####", "#  #", "####"]),
    ('7', ["####", "   #", "  ##", "  # ", "  # "]),
    ('8', ["####", "#  #", "####", "#  #", "####"]),
    ('9', ["####", "#  #", "####", "   #", "####"]),
    ('.', [" ", " ", " ", " ", "#"]),
    ('×', ["   ", "# #", " # ", "# #", "   "]),
    ('≤', ["  #", " # ", "#  ", " # ", "###"]),
    ('–', ["   ", "   ", "###", "   ", "   "]),
];

/// The same of ASCII characters.
const ASCII: [(char, [&str; ROWS]); 14] = [
    ('0', [" _ ", "| |", "|_|"]),
    ('1', ["   ", "  |", "  |"]),
    ('2', [" _ ", " _|", "|_ "]),
    ('3', [" _ ", " _|", " _|"]),
    ('4', ["   ", "|_|", "  |"]),
    ('5', [" _ ", "|_ ", " _|"]),
    ('6', [" _ ", "|_ ", "|_|"]),
    ('7', [" _ ", "  |", "  |"]),
    ('8', [" _ ", "|_|", "|_|"]),
    ('9', [" _ ", "|_|", " _|"]),
    ('.', [" ", " ", "."]),
    ('×', [" ", " ", "x"]),
    ('≤', ["  ", "<=", "  "]),
    ('–', ["   ", " - ", "   "]),
];

/// A number, in half blocks or in ASCII.
pub(crate) fn rows(text: &str, is_ascii: bool) -> [String; ROWS] {
    let mut rows: [String; ROWS] = Default::default();
    for c in text.chars() {
        let Some(form) = form(c, is_ascii) else { continue };
        for (row, part) in rows.iter_mut().zip(form) {
            if !row.is_empty() {
                row.push(' ');
            }
            row.push_str(&part);
        }
    }
    rows
}

/// Columns that a number takes.
pub(crate) fn width(text: &str, is_ascii: bool) -> usize {
    rows(text, is_ascii)[0].width()
}

fn form(c: char, is_ascii: bool) -> Option<[String; ROWS]> {
    if is_ascii {
        return ASCII.iter().find(|(known, _)| *known == c).map(|(_, rows)| rows.map(str::to_owned));
    }
    let points = FORMS.iter().find(|(known, _)| *known == c)?.1;
    let row = |row: usize| {
        let is_set = |y: usize, x: usize| points.get(y).is_some_and(|line| line.as_bytes()[x] == b'#');
        let cell = |x: usize| match (is_set(2 * row, x), is_set(2 * row + 1, x)) {
            (true, true) => '█',
            (true, false) => '▀',
            (false, true) => '▄',
            (false, false) => ' ',
        };
        (0..points[0].len()).map(cell).collect()
    };
    Some([row(0), row(1), row(2)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_of_a_figure_has_a_form_and_all_rows_are_as_wide() {
        for is_ascii in [false, true] {
            for text in ["1.22×", "≤1.71×", "0.83×", "1.60", "12.34×", "5.67×", "8.90×", "–"] {
                let rows = rows(text, is_ascii);
                assert!(rows.iter().all(|row| row.width() == width(text, is_ascii)), "{text}: {rows:?}");
                assert!(text.chars().all(|c| form(c, is_ascii).is_some()), "{text}");
                assert!(!is_ascii || rows.iter().all(|row| row.is_ascii()), "{rows:?}");
            }
        }
        assert_eq!(rows("1.2×", false), ["▀█    ▀▀▀█ ▄ ▄", " █    █▀▀▀ ▄▀▄", "▀▀▀ ▀ ▀▀▀▀    "].map(str::to_owned));
    }
}
