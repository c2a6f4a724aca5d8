//! Whether a terminal is light or dark, by asking it.

use std::io::{IsTerminal, stdout};

use terminal_colorsaurus::{QueryOptions, ThemeMode, theme_mode};

/// Name of the bundled theme for the background that the terminal reports (OSC 10 and 11); `None` if it is dark or
/// unknown. Call it before the front end takes over the terminal: until the answer arrives, at most a second, keys are
/// lost.
#[must_use]
pub fn fitting_theme() -> Option<String> {
    let light = stdout().is_terminal() && matches!(theme_mode(QueryOptions::default()), Ok(ThemeMode::Light));
    light.then(|| "light".to_owned())
}
