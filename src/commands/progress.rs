//! How far the reading of a long recording is, on the terminal.
//!
//! Invariant: nothing appears for what takes a moment, nor where standard error is no terminal, and
//! nothing stays.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use draftscope::trace::Recording;
use indicatif::{ProgressBar, ProgressStyle};

/// What takes less is not worth a line.
const MOMENT: Duration = Duration::from_millis(250);

/// Steps of the bar.
const STEPS: u64 = 1000;

/// A line that comes when something takes long, and goes with it.
pub(crate) struct Progress {
    what: String,
    since: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(crate) fn new(what: String) -> Self {
        Self { what, since: Instant::now(), bar: None }
    }

    /// The share that is done, 0 to 1.
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

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Looks a recording over, and tells where it was cut off.
pub(crate) fn open(path: &Path) -> Result<Recording> {
    let mut progress = Progress::new(format!("reading {}", path.display()));
    let recording = Recording::open_watched(path, |share| progress.at(share))?;
    drop(progress);
    if let Some(cut) = recording.cut() {
        super::output::say(&cut.to_string());
    }
    Ok(recording)
}
