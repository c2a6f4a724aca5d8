//! Text that is typed into the prompt, at the pace at which a terminal sends it.
//!
//! Invariant: what waits is taken in its order, and text that arrives between two frames is inserted at once.

use std::collections::VecDeque;
use std::io;

use crossterm::event::{Event as Input, KeyEventKind};

use super::EventLoop;
use crate::update;

impl EventLoop {
    /// Inserts what was typed into the prompt.
    pub(super) fn type_text(&mut self) {
        if !self.typing.is_empty() {
            update::type_text(&mut self.app, &std::mem::take(&mut self.typing));
        }
    }

    /// The text that an input and those waiting after it type into the prompt, which are taken; none if it does something
    /// else.
    pub(super) fn typed(&self, input: &Input, waiting: &mut VecDeque<io::Result<Input>>) -> Option<String> {
        let typed = |input: &Input| match input {
            Input::Key(key) if key.kind != KeyEventKind::Release => update::typed(&self.app, *key),
            _ => None,
        };
        let mut text = String::from(typed(input)?);
        while let Some(next) = waiting.front().and_then(|next| typed(next.as_ref().ok()?)) {
            text.push(next);
            waiting.pop_front();
        }
        Some(text)
    }
}
