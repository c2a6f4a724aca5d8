//! How recordings are asked to play.
//!
//! Invariant: nothing here changes while they play; `replay` keeps what commands change.

use std::time::Duration;

/// Slowest and fastest playback, as multiples of the recorded pace.
pub const SPEEDS: (f32, f32) = (0.05, 16.0);

/// How to play.
#[derive(Clone, Copy, Debug)]
pub struct ReplayOptions {
    /// Multiple of the recorded pace, within [`SPEEDS`]; none sends everything at once.
    pub speed: Option<f32>,
    /// Longest wait between two events, before `speed`.
    pub idle_limit: Duration,
    /// Begin again at the end.
    pub loops: bool,
    /// Hold before the first round.
    pub is_held: bool,
    /// Stay at the end, held, for marks and to play again; the line that ends the run is not sent.
    /// Otherwise the events end.
    pub stays: bool,
    /// Never begin again: what is sent is being recorded.
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
