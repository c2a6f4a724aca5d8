//! A progress bar for reading a long recording.
//!
//! Invariant: the bar appears only on a terminal and only if reading takes longer than a moment, and it
//! is removed at the end.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use draftscope::session::trace::Recording;
use indicatif::{ProgressBar, ProgressStyle};

/// Reading that takes less shows no bar.
const MOMENT: Duration = Duration::from_millis(250);

/// Steps of the bar.
const STEPS: u64 = 1000;

/// A bar that appears when reading takes long, and is removed on drop.
pub(crate) struct ReadingBar {
    what: String,
    since: Instant,
    bar: Option<ProgressBar>,
}

impl ReadingBar {
    pub(crate) fn new(what: String) -> Self {
        Self { what, since: Instant::now(), bar: None }
    }

    /// Shows the share that is done, 0 to 1.
    pub(crate) fn at(&mut self, share: f64) {
        if self.bar.is_none() && self.since.elapsed() >= MOMENT {
            let style = ProgressStyle::with_template("{msg} {bar:30} {percent} %");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            self.bar = Some(ProgressBar::new(STEPS).with_style(style).with_message(self.what.clone()));
        }
        if let Some(bar) = &self.bar {
            bar.set_position((share * STEPS as f64) as u64);
        }
    }
}

impl Drop for ReadingBar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Opens a recording, and reports where it was cut off.
pub(crate) fn open(path: &Path) -> Result<Recording> {
    let mut progress = ReadingBar::new(format!("reading {}", path.display()));
    let recording = Recording::open_watched(path, |share| progress.at(share))?;
    drop(progress);
    if let Some(cut) = recording.cut() {
        super::output::say(&cut.to_string());
    }
    Ok(recording)
}
