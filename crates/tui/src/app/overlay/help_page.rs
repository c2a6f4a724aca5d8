//! What of the help is on show.

use crossterm::event::KeyEvent;

use crate::input::action::Action;
use crate::input::line_input::LineInput;

/// The line on top, and what is searched.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct HelpPage {
    /// Line on top.
    pub(crate) top: usize,
    /// What is typed, while somebody searches.
    pub(crate) search: Option<LineInput>,
}

impl HelpPage {
    /// Scrolls, or begins a search; whether the action is for this. `page` lines are a page, `last` is the greatest line
    /// that can be on top.
    pub(crate) fn scroll(&mut self, action: Action, page: usize, last: usize) -> bool {
        self.top = match action {
            Action::Up => self.top.saturating_sub(1),
            Action::Down => (self.top + 1).min(last),
            Action::PageUp => self.top.saturating_sub(page),
            Action::PageDown => (self.top + page).min(last),
            Action::Top => 0,
            Action::Follow => last,
            Action::Search => {
                self.search.get_or_insert_default();
                0
            }
            Action::Confirm => self.top,
            _ => return false,
        };
        true
    }

    /// Takes a key that no binding took.
    pub(crate) fn input(&mut self, key: KeyEvent) {
        if self.search.as_mut().is_some_and(|search| search.input(key)) {
            self.top = 0;
        }
    }
}
