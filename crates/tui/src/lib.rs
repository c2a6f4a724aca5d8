//! The terminal front end: an `Elm`-shaped loop over events of the source and keys of the user.
//!
//! ```text
//!   key ──► keymap ──► Action ──► update(&mut App, &mut Timeline, Action) ──► Command ──► source
//!   source ──► Event ──► consumers, then Timeline ──► View::draw(&Timeline, &App, &Theme) ──► Frame
//! ```
//!
//! Invariant: two states, never mixed. [`Session`](draftscope_session::Session) is what happened, its past included, and
//! only events change it; [`App`] is where the user looks, and only keys change it. Views read both and write neither.
//! Nothing here knows an engine, a model or a recording's file.

mod action;
mod answering;
mod app;
mod background;
mod color_depth;
mod conversation;
mod diff;
mod diff_loop;
mod display;
mod editor;
mod event_loop;
mod fate;
mod filter;
mod fleet;
mod fleet_loop;
mod help_page;
mod hit_map;
mod keymap;
mod lesson_player;
mod lesson_row;
mod lesson_run;
mod line_input;
mod marks;
mod offscreen;
mod options;
mod other_screens;
mod overlay;
mod pace;
mod pacing;
mod page;
mod panel_row;
mod pending_requests;
mod plain_glyphs;
mod playback;
mod quiz;
mod search;
mod setting_row;
mod starters;
mod study;
mod terminal;
mod terminal_input;
mod terminal_modes;
mod theme;
mod theme_set;
mod tour;
mod update;
mod view;
mod welcome;
mod what_if_form;
mod widgets;

pub use action::Action;
pub use app::App;
pub use background::fitting_theme;
pub use color_depth::ColorDepth;
pub use diff::{Compared, Recorded};
pub use display::Marks;
pub use event_loop::{Ended, run};
pub use fleet::FleetView;
pub use hit_map::HitMap;
pub use keymap::{Binding, Chord, Context, Keymap};
pub use lesson_player::{PlayedStep, play_lesson};
pub use offscreen::Offscreen;
pub use options::{
    Exporter, FirstStart, Keep, KeepName, KeptProgress, Pictures, QuizFiles, Read, Recordings, Saver, ThemeKeeper,
    TuiOptions, UserLook, Write, WriteAs, WriteScreen, WriteText,
};
pub use pace::Pace;
pub use page::Page;
pub use playback::Playback;
pub use terminal::TuiError;
pub use terminal_modes::{TerminalModes, terminal_modes};
pub use theme::{Role, Theme};
pub use update::{paste, press, update};
pub use view::{MIN_SIZE, View};

#[cfg(test)]
#[cfg(unix)]
mod pty;
#[cfg(test)]
mod tests;
