//! Text that is typed into the prompt, at the pace at which a terminal sends it.
//!
//! Invariant: what waits is taken in its order, and text that arrives between two frames is inserted at once.

use std::collections::VecDeque;
use std::io;

use crossterm::event::{Event as Input, KeyEventKind};
use futures::{FutureExt, Stream, StreamExt};

use super::EventLoop;
use crate::update;

/// Most inputs that are taken at once.
const MAX_WAITING: usize = 1 << 16;

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

/// The next input. Those that wait already are taken with it, at most [`MAX_WAITING`]: text that arrives without bracketed
/// paste comes as a key for each character.
pub(super) async fn next_input(
    waiting: &mut VecDeque<io::Result<Input>>,
    inputs: &mut (impl Stream<Item = io::Result<Input>> + Unpin),
) -> Option<io::Result<Input>> {
    if waiting.is_empty() {
        waiting.push_back(inputs.next().await?);
    }
    while waiting.len() < MAX_WAITING
        && let Some(Some(next)) = inputs.next().now_or_never()
    {
        waiting.push_back(next);
    }
    waiting.pop_front()
}
