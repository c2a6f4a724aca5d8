//! The terminal front end: an `Elm`-shaped loop over events of the source and keys of the user.
//!
//! ```text
//!   key ──► keymap ──► Action ──► update(&mut App, &Session, Action) ──► Command ──► source
//!   source ──► Event ──► consumers, then Session ──► view(&Session, &App, &Theme) ──► Frame
//! ```
//!
//! Invariant: two states, never mixed. [`Session`](crate::session::Session) is what happened and
//! only events change it; [`App`] is where the user looks and only keys change it. Views read both
//! and write neither. Nothing here knows an engine, a model or a file of a recording.

mod action;
mod app;
mod editor;
mod fate;
mod keymap;
mod terminal;
mod theme;
mod update;
mod view;
mod widgets;

pub use action::Action;
pub use app::{App, TuiOptions};
pub use keymap::{Binding, Chord, Context, Keymap};
pub use terminal::{Ended, TuiError, run};
pub use theme::{Depth, Role, Theme};
pub use update::{paste, press, update};
pub use view::{Seen, view};

#[cfg(test)]
mod pty;
#[cfg(test)]
mod tests;
