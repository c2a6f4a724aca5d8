//! A line being typed over the screen: for the list of actions, and for the search.
//!
//! Invariant: no control character gets in and the length is bounded. Matching happens here; `update` acts on the
//! result.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::input::action::Action;

/// Longest text in characters, unless set otherwise.
const MAX: usize = 80;

/// Longest note in characters.
const MAX_NOTE: usize = 400;

/// One line of text with the cursor at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LineInput {
    text: String,
    /// Limit in characters: a note may be longer than a name.
    is_note: bool,
    /// The chosen match.
    pub(crate) choice: usize,
}

impl LineInput {
    /// For a note.
    pub(crate) fn note() -> Self {
        Self { is_note: true, ..Self::default() }
    }

    /// With a text to begin with.
    pub(crate) fn with(text: &str) -> Self {
        Self { text: text.chars().filter(|c| !c.is_control()).take(MAX).collect(), ..Self::default() }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Handles a key that is not bound; returns whether the text changed.
    pub(crate) fn input(&mut self, key: KeyEvent) -> bool {
        let max = if self.is_note { MAX_NOTE } else { MAX };
        let plain = !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
        match key.code {
            KeyCode::Char(c) if plain && !c.is_control() && self.text.chars().count() < max => self.text.push(c),
            KeyCode::Backspace => drop(self.text.pop()),
            // as in a shell: the line, and the last word
            KeyCode::Char('u') if key.modifiers == KeyModifiers::CONTROL && !self.text.is_empty() => self.text.clear(),
            KeyCode::Char('w') if key.modifiers == KeyModifiers::CONTROL && !self.text.is_empty() => {
                let kept = self.text.trim_end().rfind(' ').map_or(0, |space| space + 1);
                self.text.truncate(kept);
            }
            _ => return false,
        }
        self.choice = 0;
        true
    }

    /// The actions that match the text, best first: that of this name, those whose name begins with it, then those that
    /// contain all its words; among equals the more useful one.
    pub(crate) fn actions(&self) -> Vec<Action> {
        let wanted = self.text.trim().to_lowercase();
        let words: Vec<&str> = wanted.split_whitespace().collect();
        let rank = |action: &Action| {
            let name = action.name().replace('_', " ");
            let described = action.describe().to_lowercase();
            match () {
                () if name == wanted => Some(0),
                () if name.starts_with(&wanted) => Some(1),
                () if words.iter().all(|word| name.contains(word)) => Some(2),
                () if words.iter().all(|word| name.contains(word) || described.contains(word)) => Some(3),
                () => None,
            }
        };
        let mut found: Vec<_> = Action::ALL.iter().filter_map(|action| Some((rank(action)?, *action))).collect();
        found.sort_by_key(|(rank, action)| (*rank, action.place_in_list()));
        found.into_iter().map(|(_, action)| action).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(text: &str) -> LineInput {
        let mut entry = LineInput::default();
        for c in text.chars() {
            entry.input(KeyEvent::from(KeyCode::Char(c)));
        }
        entry
    }

    #[test]
    fn every_action_is_found_by_its_name() {
        for action in Action::ALL {
            let name = action.name().replace('_', " ");
            assert_eq!(typed(&name).actions().first(), Some(action), "{name}");
        }
        assert_eq!(typed("").actions().len(), Action::ALL.len());
        assert_eq!(typed("").actions()[..3], [Action::Settings, Action::WhatIf, Action::ToggleSplit]);
        assert_eq!(typed("").actions().last(), Some(&Action::Down), "what every key does comes last");
        assert!(typed("clipboard").actions().contains(&Action::Copy));
        assert!(typed("zzz").actions().is_empty());
    }

    #[test]
    fn text_is_bounded_and_clean() {
        let mut entry = typed(&"a".repeat(200));
        assert_eq!(entry.text().len(), MAX);
        assert!(!entry.input(KeyEvent::from(KeyCode::Char('\u{7}'))));
        assert!(!entry.input(KeyEvent::new(KeyCode::Char('x'), KeyModifiers::CONTROL)));
        assert!(entry.input(KeyEvent::from(KeyCode::Backspace)));
        assert_eq!(entry.text().len(), MAX - 1);
    }

    #[test]
    fn the_line_and_its_last_word_are_deleted_as_in_a_shell() {
        let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
        let mut entry = typed(" States of América");
        assert!(entry.input(control('w')));
        assert_eq!(entry.text(), " States of ");
        assert!(entry.input(control('u')));
        assert_eq!(entry.text(), "");
        assert!(!entry.input(control('u')) && !entry.input(control('w')), "nothing is left to delete");
    }
}
