//! Reports the progress of a fetch on stderr.
//!
//! Invariant: stdout is never touched, and where stderr is no terminal there is one plain line per
//! step and no bar. Sources report only through [`Progress`], so tests and other front ends can
//! receive it in their own way. A message that cannot be written is dropped: it must not end a fetch.

use std::io::{IsTerminal, Write};

use draftscope_host::Taskbar;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Receives the progress of a fetch.
pub trait Progress {
    /// A new step began; one line.
    fn step(&mut self, text: &str);

    /// `done` of `total` bytes of the step have arrived; `total` is 0 when unknown.
    fn bytes(&mut self, done: u64, total: u64);

    /// The step is over, successful or not; a bar is removed.
    fn end(&mut self);
}

/// Discards all progress.
impl Progress for () {
    fn step(&mut self, _text: &str) {}
    fn bytes(&mut self, _done: u64, _total: u64) {}
    fn end(&mut self) {}
}

/// A bar on stderr where that is a terminal, else one line per step.
#[derive(Debug)]
pub struct Terminal {
    live: bool,
    bar: Option<ProgressBar>,
    taskbar: Taskbar,
}

impl Default for Terminal {
    fn default() -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { live: std::io::stderr().is_terminal() && !dumb, bar: None, taskbar: Taskbar::default() }
    }
}

impl Progress for Terminal {
    fn step(&mut self, text: &str) {
        self.end();
        let _ = writeln!(std::io::stderr(), "{text}");
    }

    fn bytes(&mut self, done: u64, total: u64) {
        if !self.live {
            return;
        }
        let bar = self.bar.get_or_insert_with(new_bar);
        bar.set_length(total.max(done));
        bar.set_position(done);
        bar.tick();
        self.taskbar.at(done, total);
    }

    fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        self.taskbar.end();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.end();
    }
}

fn new_bar() -> ProgressBar {
    let template = "  {bar:32} {decimal_bytes}/{decimal_total_bytes}  {decimal_bytes_per_sec}  {eta} left";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    // without a steady tick, whose thread is one more that the system may refuse, and then indicatif panics
    ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_style(style)
}
