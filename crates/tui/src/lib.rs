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
//!
//! The rooms, each of which imports only those above it:
//!
//! | room | is |
//! |---|---|
//! | `terminal` | the terminal: taken over and restored, its keys, its colours, its glyphs |
//! | `look` | colours and text styles by meaning, and how a token's fate looks |
//! | `input` | actions, the keys that ask for them, text that is typed |
//! | `widgets` | small drawings that know no session: bars, digits, plots, Markdown |
//! | `app` | [`App`] and its parts: where the user looks, the conversation, time, requests, learning, what lies over the screen |
//! | `other_screens` | the screens without a run: two recordings compared, and watched servers |
//! | `view` | a room a page, one file a panel; `layout` places them |
//! | `update` | what each action does to [`App`], and the command that the source gets |
//! | `loops` | what runs: a source, keys and a screen connected, with and without a terminal |
//!
//! To find out what a key does, begin at [`Action`] and go to `update`; to find out where something on the screen comes
//! from, begin at [`View`] and `view/layout.rs`.

mod app;
mod input;
mod look;
mod loops;
mod other_screens;
mod terminal;
mod update;
mod view;
mod widgets;

pub use app::App;
pub use app::clock::pace::Pace;
pub use app::clock::playback::Playback;
pub use app::options::{
    Exporter, FirstStart, Keep, KeepName, KeptProgress, Pictures, QuizFiles, Read, Recordings, Saver, ThemeKeeper,
    TuiOptions, UserLook, Write, WriteAs, WriteScreen, WriteText,
};
pub use app::place::hit_map::HitMap;
pub use app::place::page::Page;
pub use input::action::Action;
pub use input::keymap::{Binding, Chord, Context, Keymap};
pub use look::display::Marks;
pub use look::theme::{Role, Theme};
pub use loops::event_loop::{Ended, run};
pub use loops::lesson_player::{PlayedStep, play_lesson};
pub use loops::offscreen::Offscreen;
pub use other_screens::diff::{Compared, Recorded};
pub use other_screens::fleet::FleetView;
pub use terminal::TuiError;
pub use terminal::background::fitting_theme;
pub use terminal::color_depth::ColorDepth;
pub use terminal::modes::{TerminalModes, terminal_modes};
pub use update::{paste, press, update};
pub use view::{MIN_SIZE, View};

#[cfg(test)]
mod tests;
