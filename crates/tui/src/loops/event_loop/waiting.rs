//! What the loop waits for besides events: what is typed, and changes of the user's files.

use std::collections::VecDeque;
use std::io;

use crossterm::event::Event as Input;
use futures::{FutureExt, Stream, StreamExt};
use tokio::sync::watch::Receiver;

/// Most inputs that are taken at once.
const MAX_WAITING: usize = 1 << 16;

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

/// Waits until what somebody looks at changes; for ever if nobody looks any more.
pub(super) async fn changed<T: Clone>(watched: &mut Option<Receiver<T>>) -> T {
    if let Some(watched) = watched
        && watched.changed().await.is_ok()
    {
        return watched.borrow_and_update().clone();
    }
    std::future::pending().await
}
