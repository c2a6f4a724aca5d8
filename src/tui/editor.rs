//! The prompt box's text: a multi-line editor and the prompts sent before.
//!
//! Invariant: a paste only ever inserts (its line breaks are lines, never a send), and no control
//! character gets in. When to send is `update.rs`, how the box looks is `view/prompt.rs`.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui_textarea::{TextArea, WrapMode};

use super::theme::{Role, Theme};

/// Prompts remembered.
const MAX_HISTORY: usize = 200;

/// Text being typed, and what was sent before.
pub(super) struct Editor {
    area: TextArea<'static>,
    history: Vec<String>,
    /// Which prompt of the history is recalled.
    recalled: Option<usize>,
    look: Option<Theme>,
}

impl Default for Editor {
    fn default() -> Self {
        Self { area: blank(Vec::new()), history: Vec::new(), recalled: None, look: None }
    }
}

fn blank(lines: Vec<String>) -> TextArea<'static> {
    let mut area = TextArea::new(if lines.is_empty() { vec![String::new()] } else { lines });
    area.set_wrap_mode(WrapMode::WordOrGlyph);
    area.set_placeholder_text(PROMPT);
    area
}

const PROMPT: &str = "Type a prompt and press Enter";
const DRAFT: &str = "Type what comes next (a space first for a new word), Enter hands it in";

/// Keys of the editor itself, which no binding names, and what they do.
pub(super) const KEYS: &[(&str, &str)] = &[
    ("Ctrl+W", "Delete the word before the cursor"),
    ("Ctrl+U", "Delete to the start of the line"),
    ("Ctrl+K", "Delete to the end of the line"),
    ("Ctrl+A Ctrl+E", "Go to the start, to the end of the line"),
    ("Ctrl+_ Ctrl+R", "Undo, redo"),
];

impl Editor {
    /// For rendering.
    pub(super) fn area(&self) -> &TextArea<'static> {
        &self.area
    }

    pub(super) fn text(&self) -> String {
        self.area.lines().join("\n")
    }

    pub(super) fn is_empty(&self) -> bool {
        self.area.is_empty()
    }

    /// Whether Up and Down walk the history rather than the text.
    pub(super) fn is_recalling(&self) -> bool {
        self.is_empty() || self.recalled.is_some()
    }

    /// Edits with a key that no binding took; Ctrl+U and Ctrl+_ as in a shell.
    pub(super) fn input(&mut self, key: KeyEvent) {
        let is_control = key.modifiers == KeyModifiers::CONTROL;
        let changed = match key.code {
            KeyCode::Char('u') if is_control => self.area.delete_line_by_head(),
            // how terminals report Ctrl+_ differs
            KeyCode::Char('_' | '/' | '7') if is_control => self.area.undo(),
            _ => self.area.input(key),
        };
        if changed {
            self.recalled = None;
        }
    }

    pub(super) fn newline(&mut self) {
        self.area.insert_newline();
    }

    /// Inserts pasted text; carriage returns are line breaks, other control characters are dropped.
    pub(super) fn paste(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n").replace('\t', "    ");
        let kept: String = text.chars().filter(|c| *c == '\n' || !c.is_control()).collect();
        self.area.insert_str(kept);
        self.recalled = None;
    }

    /// Takes the text out for sending and remembers it.
    pub(super) fn take(&mut self) -> String {
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

    /// Recalls the prompt before the one on show.
    pub(super) fn previous(&mut self) {
        let at = self.recalled.unwrap_or(self.history.len());
        if let Some(at) = at.checked_sub(1) {
            self.recall(at);
        }
    }

    /// Recalls the prompt after the one on show; behind the last is an empty one.
    pub(super) fn next(&mut self) {
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

    /// Puts other text in place of what is there, cursor at the end.
    pub(super) fn replace(&mut self, text: &str) {
        self.area = blank(text.split('\n').map(str::to_owned).collect());
        self.area.move_cursor(ratatui_textarea::CursorMove::Bottom);
        self.area.move_cursor(ratatui_textarea::CursorMove::End);
        if let Some(theme) = self.look.take() {
            self.dress(&theme);
        }
    }

    /// Says what is to be typed: a draft, or a prompt.
    pub(super) fn invite(&mut self, draft: bool) {
        self.area.set_placeholder_text(if draft { DRAFT } else { PROMPT });
    }

    pub(super) fn dress(&mut self, theme: &Theme) {
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
