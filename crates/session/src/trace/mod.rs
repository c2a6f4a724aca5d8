//! Recordings: one JSON event per line, the header first. `docs/trace-format.md` describes the format.
//!
//! Invariant: a recording is append-only, so it has complete lines even if the program is killed, except those of the
//! last half second. A rewrite keeps events that this version does not know. Older formats stay readable. This module
//! does not depend on the source or the viewer of the events.

mod blank;
mod breakpoints;
mod digest;
mod error;
mod parallel_reader;
mod reader;
mod recorder;
mod recording;
pub mod replay;
mod replay_options;
#[cfg(test)]
mod tests;

pub use digest::Digested;
pub use error::{Cut, MAX_LINE_BYTES, RecordError, TraceError};
pub use reader::Reader;
pub use recorder::{FLUSH, RecordOptions, Recorder, TextPolicy};
pub use recording::{Events, Recording};
