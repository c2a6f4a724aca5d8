//! What runs: the loops that connect events, keys and a screen, in a terminal and without one.
//!
//! | file | connects |
//! |---|---|
//! | `event_loop` | a source, keys and a screen |
//! | `diff_loop` | two recordings, keys and a screen |
//! | `fleet_loop` | samples of servers, keys and a screen |
//! | `offscreen` | the same loop with an invisible screen, to measure what drawing costs |
//! | `lesson_player` | a lesson that plays by itself, for pages |

mod diff_loop;
pub(crate) mod event_loop;
mod fleet_loop;
pub(crate) mod lesson_player;
pub(crate) mod offscreen;

#[cfg(test)]
#[cfg(unix)]
mod pty;
