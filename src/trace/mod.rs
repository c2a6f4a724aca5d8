//! Recordings: one JSON event a line, the header first.
//!
//! Invariant: a recording is append-only and flushed at the end of every round, so a killed program
//! leaves whole lines up to its last round. Who made the events is unknown here.

mod recorder;

pub use recorder::{RecordError, Recorder};
