//! The prompt box's text: a multi-line editor and the prompts sent before.
//!
//! Invariant: a paste only inserts (its line breaks never send), and no control character gets in. `update.rs` decides
//! when to send, `view/chat/prompt.rs` draws the box.

use std::cell::Cell;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::Widget;
use ratatui_textarea::{CursorMove, DataCursor, TextArea, WrapMode};
use unicode_segmentation::UnicodeSegmentation;

use crate::look::theme::{Role, Theme};

/// Prompts remembered.
const MAX_HISTORY: usize = 200;

/// Text being typed, and what was sent before.
pub(crate) struct Editor {
    area: TextArea<'static>,
    history: Vec<String>,
    /// The recalled prompt of the history.
    recalled: Option<usize>,
    look: Option<Theme>,
    /// Size of the box as it was drawn last.
    drawn: Cell<(u16, u16)>,
    /// The size for which the text was scrolled last.
    settled: (u16, u16),
}

impl Default for Editor {
    fn default() -> Self {
        Self {
            area: blank(Vec::new()),
            history: Vec::new(),
            recalled: None,
            look: None,
            drawn: Cell::default(),
            settled: (0, 0),
        }
    }
}

fn blank(lines: Vec<String>) -> TextArea<'static> {
    let mut area = TextArea::new(if lines.is_empty() { vec![String::new()] } else { lines });
    area.set_wrap_mode(WrapMode::WordOrGlyph);
    area.set_placeholder_text(PROMPT);
    area
}

/// Columns of a line, in code points, at the borders of characters as people see them (grapheme clusters).
fn stops(line: &str) -> Vec<usize> {
    let ends = line.graphemes(true).scan(0, |column, cluster| {
        *column += cluster.chars().count();
        Some(*column)
    });
    std::iter::once(0).chain(ends).collect()
}

const PROMPT: &str = "Type a prompt and press Enter";
const DRAFT: &str = "Type what comes next (a space first for a new word), Enter hands it in";

/// The editor's own keys, which no binding names, and what they do.
pub(crate) const KEYS: &[(&str, &str)] = &[
    ("Ctrl+W", "Delete the word before the cursor"),
    ("Ctrl+U", "Delete to the start of the line"),
    ("Ctrl+K", "Delete to the end of the line"),
    ("Ctrl+A Ctrl+E", "Go to the start, to the end of the line"),
    ("Ctrl+_ Ctrl+R", "Undo, redo"),
];

impl Editor {
    /// Draws the text with its cursor.
    pub(crate) fn render(&self, space: Rect, buffer: &mut Buffer) {
        self.drawn.set((space.width, space.height));
        let DataCursor(row, column) = self.area.cursor();
        let stops = stops(&self.area.lines()[row]);
        let behind = stops.partition_point(|stop| *stop <= column);
        if stops.get(behind).is_none_or(|end| end - column == 1) {
            return self.area.render(space, buffer);
        }
        self.area.render(space, &mut Buffer::empty(space)); // computes where its cursor stands
        // The text area's own cursor covers one code point and would split a character of several: it is hidden, and
        // the whole character is marked.
        let (at, (top, left)) = (self.area.screen_cursor(), self.area.scroll_offset());
        let mut shown = self.area.clone();
        shown.set_cursor_style(self.area.cursor_line_style());
        shown.move_cursor(CursorMove::End);
        if let Some(single) = stops[behind..].windows(2).find(|pair| pair[1] - pair[0] == 1) {
            let back = self.area.lines()[row].chars().count() - single[0];
            (0..back).for_each(|_| shown.move_cursor(CursorMove::Back));
        }
        shown.render(space, buffer);
        let offset = |at: usize, first: u16| u16::try_from(at).unwrap_or(u16::MAX).saturating_sub(first);
        let place = (space.x.saturating_add(offset(at.col, left)), space.y.saturating_add(offset(at.row, top)));
        if let Some(cell) = buffer.cell_mut(place).filter(|_| space.contains(place.into())) {
            cell.set_style(self.area.cursor_style());
        }
    }

    /// Scrolls back after the box was drawn in another size, in which more of the text may fit: the text area itself only
    /// scrolls as far as its cursor needs. Returns whether the box is to be drawn again.
    pub(crate) fn settle(&mut self) -> bool {
        let size = self.drawn.get();
        let is_other = std::mem::replace(&mut self.settled, size) != size;
        if !is_other || self.area.scroll_offset().0 == 0 {
            return false;
        }
        let DataCursor(row, column) = self.area.cursor();
        let lines = self.area.lines();
        let is_at_end = row + 1 == lines.len() && column == lines[row].chars().count();
        let back = match (u16::try_from(row), u16::try_from(column)) {
            _ if is_at_end => vec![CursorMove::Bottom, CursorMove::End],
            (Ok(row), Ok(column)) => vec![CursorMove::Jump(row, column)],
            _ => return false, // the text area jumps no further
        };
        // rows are counted in 16 bits, and one step has 15
        (0..=2).for_each(|_| self.area.scroll((-i16::MAX, 0)));
        back.into_iter().for_each(|step| self.area.move_cursor(step));
        true
    }

    /// Rows that the text takes at this width, 1 to `most`.
    pub(crate) fn rows(&self, width: u16, most: u16) -> u16 {
        let enough = usize::from(width) * usize::from(most);
        let begins = self.area.lines().iter().take(most.into()).map(|line| line.chars().take(enough).collect());
        let mut area = blank(begins.collect());
        area.move_cursor(CursorMove::Bottom);
        area.move_cursor(CursorMove::End);
        // only the text area knows where lines break, and only after drawing
        let space = Rect { width, height: 1, ..Rect::default() };
        area.render(space, &mut Buffer::empty(space));
        u16::try_from(area.screen_cursor().row + 1).unwrap_or(most).clamp(1, most)
    }

    pub(crate) fn text(&self) -> String {
        self.area.lines().join("\n")
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.area.is_empty()
    }

    /// Whether Up and Down walk the history rather than the text.
    pub(crate) fn is_recalling(&self) -> bool {
        self.is_empty() || self.recalled.is_some()
    }

    /// Edits with a key that is not bound; Ctrl+U and Ctrl+_ as in a shell.
    pub(crate) fn input(&mut self, key: KeyEvent) {
        let is_control = key.modifiers == KeyModifiers::CONTROL;
        let changed = match key.code {
            KeyCode::Char('u') if is_control => self.area.delete_line_by_head(),
            // terminals report Ctrl+_ in different ways
            KeyCode::Char('_' | '/' | '7') if is_control => self.area.undo(),
            KeyCode::Backspace if key.modifiers.is_empty() => self.erase(false),
            KeyCode::Delete if key.modifiers.is_empty() => self.erase(true),
            _ => self.input_whole(key),
        };
        if changed {
            self.recalled = None;
        }
    }

    /// A key of the text area; the cursor ends at a border of whole characters.
    fn input_whole(&mut self, key: KeyEvent) -> bool {
        let from = self.area.cursor();
        let changed = self.area.input(key);
        let to = self.area.cursor();
        let stops = stops(&self.area.lines()[to.0]);
        let behind = stops.partition_point(|stop| *stop < to.1);
        if stops.get(behind) != Some(&to.1) {
            let is_forward = to.0 == from.0 && to.1 > from.1;
            let stop = if is_forward { stops.get(behind).copied() } else { behind.checked_sub(1).map(|at| stops[at]) };
            self.move_to_column(stop.unwrap_or(to.1));
        }
        changed
    }

    /// Deletes a whole character after or before the cursor; at the end of a line, the line break.
    fn erase(&mut self, forward: bool) -> bool {
        let DataCursor(row, column) = self.area.cursor();
        let stops = stops(&self.area.lines()[row]);
        if forward {
            return match stops.iter().find(|stop| **stop > column) {
                Some(end) => self.area.delete_str(end - column),
                None => self.area.delete_next_char(),
            };
        }
        let Some(start) = stops.iter().rev().find(|stop| **stop < column) else {
            return self.area.delete_char();
        };
        self.move_to_column(*start);
        self.area.delete_str(column - start)
    }

    fn move_to_column(&mut self, column: usize) {
        let by = if column < self.area.cursor().1 { CursorMove::Back } else { CursorMove::Forward };
        for _ in 0..self.area.cursor().1.abs_diff(column) {
            self.area.move_cursor(by);
        }
    }

    pub(crate) fn newline(&mut self) {
        self.area.insert_newline();
    }

    /// Inserts pasted text; carriage returns are line breaks, other control characters are dropped.
    pub(crate) fn paste(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n").replace('\t', "    ");
        let kept: String = text.chars().filter(|c| *c == '\n' || !c.is_control()).collect();
        self.area.insert_str(kept);
        self.recalled = None;
    }

    /// Inserts characters that were typed one after the other, at the cost of one.
    pub(crate) fn type_text(&mut self, text: &str) {
        let mut before = text.chars();
        let Some(last) = before.next_back() else { return };
        self.area.insert_str(before.as_str());
        self.input(KeyEvent::from(KeyCode::Char(last)));
    }

    /// Takes the text for sending and remembers it.
    pub(crate) fn take(&mut self) -> String {
        let text = self.text();
        if self.history.last() != Some(&text) {
            self.history.push(text.clone());
        }
        if self.history.len() > MAX_HISTORY {
            self.history.remove(0);
        }
        self.replace("");
        self.recalled = None;
        text
    }

    /// Recalls the prompt before the shown one.
    pub(crate) fn previous(&mut self) {
        let at = self.recalled.unwrap_or(self.history.len());
        if let Some(at) = at.checked_sub(1) {
            self.recall(at);
        }
    }

    /// Recalls the prompt after the shown one; after the last comes an empty one.
    pub(crate) fn next(&mut self) {
        match self.recalled {
            Some(at) if at + 1 < self.history.len() => self.recall(at + 1),
            Some(_) => {
                self.replace("");
                self.recalled = None;
            }
            None => {}
        }
    }

    fn recall(&mut self, at: usize) {
        let text = self.history[at].clone();
        self.replace(&text);
        self.recalled = Some(at);
    }

    /// Replaces the text, cursor at the end.
    pub(crate) fn replace(&mut self, text: &str) {
        self.area = blank(text.split('\n').map(str::to_owned).collect());
        self.area.move_cursor(CursorMove::Bottom);
        self.area.move_cursor(CursorMove::End);
        if let Some(theme) = self.look.take() {
            self.dress(&theme);
        }
    }

    /// Sets the placeholder: a draft or a prompt.
    pub(crate) fn invite(&mut self, draft: bool) {
        self.area.set_placeholder_text(if draft { DRAFT } else { PROMPT });
    }

    pub(crate) fn dress(&mut self, theme: &Theme) {
        self.area.set_style(theme[Role::Text]);
        self.area.set_cursor_line_style(theme[Role::Text]);
        self.area.set_placeholder_style(theme[Role::TextDim]);
        self.look = Some(theme.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_what_people_see() {
        let mut editor = Editor::default();
        let press = |editor: &mut Editor, code| editor.input(KeyEvent::from(code));
        editor.paste("a👩‍👩‍👧🇩🇪e\u{301}");
        press(&mut editor, KeyCode::Backspace);
        assert_eq!(editor.text(), "a👩‍👩‍👧🇩🇪");
        press(&mut editor, KeyCode::Left);
        press(&mut editor, KeyCode::Char('Z'));
        assert_eq!(editor.text(), "a👩‍👩‍👧Z🇩🇪");
        press(&mut editor, KeyCode::Delete);
        assert_eq!(editor.text(), "a👩‍👩‍👧Z");
        press(&mut editor, KeyCode::Left);
        press(&mut editor, KeyCode::Left);
        press(&mut editor, KeyCode::Char('b'));
        press(&mut editor, KeyCode::Right);
        press(&mut editor, KeyCode::Char('c'));
        assert_eq!(editor.text(), "ab👩‍👩‍👧cZ");
        editor.paste("\n");
        press(&mut editor, KeyCode::Backspace);
        press(&mut editor, KeyCode::Char('d'));
        assert_eq!(editor.text(), "ab👩‍👩‍👧cdZ");
    }

    #[test]
    fn a_cursor_takes_no_character_apart() {
        let drawn = |editor: &Editor| {
            let mut buffer = Buffer::empty(Rect::new(0, 0, 30, 1));
            editor.render(buffer.area, &mut buffer);
            buffer.content().iter().map(ratatui::buffer::Cell::symbol).collect::<String>()
        };
        let mut editor = Editor::default();
        editor.paste("ab 👩‍👩‍👧 cd 🇩🇪 cafe\u{301}");
        let whole = drawn(&editor);
        for _ in 0..13 {
            editor.input(KeyEvent::from(KeyCode::Left));
            assert_eq!(drawn(&editor), whole);
        }
    }

    #[test]
    fn rows_are_those_that_words_take() {
        let rows = |text: &str, width| {
            let mut editor = Editor::default();
            editor.paste(text);
            editor.rows(width, 8)
        };
        assert_eq!((rows("", 20), rows("one line", 20), rows("two\nlines", 20)), (1, 1, 2));
        assert_eq!(rows("twelveletter twelveletter twelveletter", 20), 3, "38 columns, and no room for half a word");
        assert_eq!(rows(&"word ".repeat(100_000), 20), 8);
    }

    #[test]
    fn keys_edit_as_in_a_shell() {
        let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
        let mut editor = Editor::default();
        editor.paste("first\nsecond line");
        editor.input(control('w'));
        assert_eq!(editor.text(), "first\nsecond ");
        editor.input(control('u'));
        assert_eq!(editor.text(), "first\n");
        editor.input(control('7'));
        assert_eq!(editor.text(), "first\nsecond ");
        editor.input(control('r'));
        assert_eq!(editor.text(), "first\n");
    }
}
