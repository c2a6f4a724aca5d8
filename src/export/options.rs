//! What an export shows.

use std::time::Duration;

/// Options of an export.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// Replace an existing file or folder.
    pub force: bool,
    /// The moment that a picture shows, since the start of the run; none is the end.
    pub at: Option<Duration>,
    /// Columns and rows of the screen.
    pub size: (u16, u16),
    /// Theme of the screen; none is the default one.
    pub theme: Option<String>,
    /// Longest wait between two frames of a film.
    pub idle_limit: Duration,
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self { force: false, at: None, size: (120, 40), theme: None, idle_limit: Duration::from_secs(2) }
    }
}
