//! Whether a terminal is light or dark, by asking it.

use std::io::{IsTerminal, stdout};

use terminal_colorsaurus::{QueryOptions, ThemeMode, theme_mode};

/// Name of the bundled theme for the background that the terminal reports (OSC 10 and 11); `None` if it does not. Call it
/// while nothing else reads the terminal: until the answer arrives, at most a second, keys are lost.
#[must_use]
pub fn fitting_theme() -> Option<&'static str> {
    if !stdout().is_terminal() {
        return None;
    }
    match theme_mode(QueryOptions::default()).ok()? {
        ThemeMode::Light => Some("light"),
        ThemeMode::Dark => Some("default"),
    }
}
