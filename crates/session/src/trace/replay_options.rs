//! Options for playing recordings.
//!
//! Invariant: they do not change while recordings play; `replay` stores what commands change.

use std::time::Duration;

/// Slowest and fastest playback, as multiples of the recorded pace.
pub const SPEEDS: (f32, f32) = (0.02, 16.0);

/// How to play.
#[derive(Clone, Copy, Debug)]
pub struct ReplayOptions {
    /// Multiple of the recorded pace, within [`SPEEDS`]; none sends everything at once.
    pub speed: Option<f32>,
    /// Longest wait between two events, before it is divided by `speed`.
    pub idle_limit: Duration,
    /// Start again at the end.
    pub loops: bool,
    /// Pause before the first round.
    pub is_held: bool,
    /// Pause at the end, so that marks can be made and it can play again; the line that ends the run is not sent.
    /// Otherwise the source ends.
    pub stays: bool,
    /// Never start again, since the sent events are recorded.
    pub once: bool,
}

impl Default for ReplayOptions {
    fn default() -> Self {
        Self {
            speed: Some(1.0),
            idle_limit: Duration::from_secs(2),
            loops: false,
            is_held: false,
            stays: false,
            once: false,
        }
    }
}
