//! The same events without a screen: as text, as one summary, as JSON lines.
//!
//! Invariant: what is written follows from events alone, and control characters of model output
//! reach a terminal only as pictures, or escaped where JSON is written. Where events come from is unknown here.

mod json;
mod sent_prompt;
mod summary;
mod text;

pub use draftscope_session::drive::{Driver, Outcome};
pub use json::{write_json_line, write_json_pretty};
pub use sent_prompt::SentPrompts;
pub use summary::{CompareSummary, Described, FirstRun, Spread, Summary};
pub use text::{Jsonl, Text};
