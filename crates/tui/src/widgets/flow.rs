//! Styled text of many small pieces, wrapped into lines.
//!
//! Words may span pieces, so wrapping works on graphemes: break after the last space that fits, else anywhere.
//! Invariant: no line is wider than requested (a wide character that cannot fit at all becomes `·`), and no control
//! character comes out if none goes in except the newline.

use std::hash::{Hash, Hasher};

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// A grapheme to be placed in a line.
#[derive(Clone, Hash)]
struct Cell {
    text: String,
    width: usize,
    style: Style,
    tag: (u32, u16),
}

/// Where on a line a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tagged {
    pub(crate) x: u16,
    pub(crate) width: u16,
    pub(crate) round: u32,
    pub(crate) column: u16,
}

/// Collects pieces and wraps them.
#[derive(Clone)]
pub(crate) struct Flow {
    width: usize,
    lines: Vec<Line<'static>>,
    line: Vec<Cell>,
    used: usize,
    /// The tag of what is pushed now.
    tag: (u32, u16),
    tags: Vec<Vec<Tagged>>,
}

impl Flow {
    pub(crate) fn new(width: u16) -> Self {
        Self {
            width: usize::from(width).max(1),
            lines: Vec::new(),
            line: Vec::new(),
            used: 0,
            tag: (0, 0),
            tags: Vec::new(),
        }
    }

    /// Finished lines; the current one has this index.
    pub(crate) fn line_index(&self) -> usize {
        self.lines.len()
    }

    /// What is pushed from now on belongs to this column of this round; round 0 is none.
    pub(crate) fn tag(&mut self, round: u32, column: usize) {
        self.tag = (round, column.min(usize::from(u16::MAX)) as u16);
    }

    /// Takes the finished lines; the current one stays.
    pub(crate) fn take_finished(&mut self) -> (Vec<Line<'static>>, Vec<Vec<Tagged>>) {
        (std::mem::take(&mut self.lines), std::mem::take(&mut self.tags))
    }

    /// Hashes the current line: two with the same hash continue alike.
    pub(crate) fn hash_line(&self, state: &mut impl Hasher) {
        self.line.hash(state);
    }

    /// Adds text; a newline ends the line.
    pub(crate) fn push(&mut self, text: &str, style: Style) {
        for grapheme in text.graphemes(true) {
            if grapheme == "\n" {
                self.end_line();
            } else {
                self.push_grapheme(grapheme, style);
            }
        }
    }

    fn push_grapheme(&mut self, grapheme: &str, style: Style) {
        let width = grapheme.width();
        let cell = if width > self.width {
            Cell { text: "·".to_owned(), width: 1, style, tag: self.tag }
        } else {
            Cell { text: grapheme.to_owned(), width, style, tag: self.tag }
        };
        if self.used + cell.width > self.width && cell.text == " " {
            // A space at the edge is the line break.
            self.end_line();
            return;
        }
        while self.used + cell.width > self.width {
            self.wrap();
        }
        self.used += cell.width;
        self.line.push(cell);
    }

    /// Ends the current line unless what comes next, so many columns, still fits on it.
    pub(crate) fn keep_together(&mut self, width: usize) {
        if self.used > 0 && self.used + width > self.width {
            self.end_line();
        }
    }

    /// Breaks after the last space, or here when there is none.
    fn wrap(&mut self) {
        let space = self.line.iter().rposition(|cell| cell.text == " ");
        let rest = space.map_or_else(Vec::new, |at| self.line.split_off(at + 1));
        self.end_line();
        self.used = rest.iter().map(|cell| cell.width).sum();
        self.line = rest;
    }

    /// Ends the current line, also when it is empty.
    pub(crate) fn end_line(&mut self) {
        let cells = std::mem::take(&mut self.line);
        self.used = 0;
        let mut spans: Vec<Span<'static>> = Vec::new();
        let (mut tags, mut x): (Vec<Tagged>, u16) = (Vec::new(), 0);
        for cell in cells {
            let width = cell.width as u16;
            match tags.last_mut() {
                Some(last) if (last.round, last.column) == cell.tag => last.width += width,
                _ => tags.push(Tagged { x, width, round: cell.tag.0, column: cell.tag.1 }),
            }
            x += width;
            match spans.last_mut() {
                Some(span) if span.style == cell.style => span.content.to_mut().push_str(&cell.text),
                _ => spans.push(Span::styled(cell.text, cell.style)),
            }
        }
        self.lines.push(Line::from(spans));
        self.tags.push(tags);
    }

    /// Ends the current line unless it is empty.
    pub(crate) fn break_line(&mut self) {
        if !self.line.is_empty() {
            self.end_line();
        }
    }

    /// All lines.
    pub(crate) fn finish(self) -> Vec<Line<'static>> {
        self.finish_tagged().0
    }

    /// All lines, and the tokens on each.
    pub(crate) fn finish_tagged(mut self) -> (Vec<Line<'static>>, Vec<Vec<Tagged>>) {
        self.break_line();
        (self.lines, self.tags)
    }
}

/// Stands for a space at which no line may end, while text is wrapped.
const UNBROKEN: &str = "\u{e000}";

/// Plain text wrapped at a width; a number and its `%` stay together.
pub(crate) fn wrapped(text: &str, width: u16, style: Style) -> Vec<Line<'static>> {
    let mut flow = Flow::new(width);
    flow.push(&text.replace(" %", &format!("{UNBROKEN}%")), style);
    let mut lines = flow.finish();
    for span in lines.iter_mut().flat_map(|line| &mut line.spans).filter(|span| span.content.contains(UNBROKEN)) {
        span.content = span.content.replace(UNBROKEN, " ").into();
    }
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wrap(pieces: &[&str], width: u16) -> Vec<String> {
        let mut flow = Flow::new(width);
        for (i, piece) in pieces.iter().enumerate() {
            let style = if i % 2 == 0 { Style::new() } else { Style::new().bold() };
            flow.push(piece, style);
        }
        flow.finish().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_number_is_not_parted_from_its_percent_sign() {
        let lines: Vec<_> = wrapped("accepted 41 %: few", 12, Style::new()).iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["accepted ", "41 %: few"]);
    }

    #[test]
    fn words_that_span_pieces_stay_whole() {
        let pieces = ["the Ray", "leigh", " effect"];
        assert_eq!(wrap(&pieces, 9), ["the ", "Rayleigh ", "effect"]);
        assert_eq!(wrap(&pieces, 8), ["the ", "Rayleigh", "effect"]);
        assert_eq!(wrap(&["abcdef"], 4), ["abcd", "ef"]);
        assert_eq!(wrap(&["a\n\nb"], 4), ["a", "", "b"]);
    }

    #[test]
    fn wide_characters_never_overhang() {
        assert_eq!(wrap(&["夕焼け"], 5), ["夕焼", "け"]);
        assert_eq!(wrap(&["夕焼"], 1), ["·", "·"]);
        assert_eq!(wrap(&["👩‍👩‍👧x"], 2), ["👩‍👩‍👧", "x"]);
    }

    proptest! {
        #[test]
        fn no_line_is_too_wide(pieces in proptest::collection::vec("[ a-z夕é🦀\n]{0,12}", 0..8), width in 1u16..20) {
            let mut flow = Flow::new(width);
            for piece in &pieces {
                flow.push(piece, Style::new());
            }
            for line in flow.finish() {
                prop_assert!(line.width() <= usize::from(width));
            }
        }
    }
}
