//! Recordings: one JSON event a line, the header first. `docs/trace-format.md` says what stands where.
//!
//! Invariant: a recording is append-only, so a killed program leaves whole lines up to half a second
//! before; whatever a reader does not know survives a rewrite; older formats stay readable. Who made
//! the events and who looks at them is unknown here.

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
pub use error::{Cut, RecordError, TraceError};
pub use reader::{MAX_LINE_BYTES, Reader};
pub use recorder::{FLUSH, RecordOptions, Recorder, TextPolicy};
pub use recording::{Events, Recording};
