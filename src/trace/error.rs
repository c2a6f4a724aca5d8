//! What can be wrong with a recording, one sentence each.

use std::io;
use std::path::PathBuf;

use crate::protocol::TRACE_VERSION;

use super::reader::MAX_LINE_BYTES;

/// A recording that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// There is a file of this name.
    #[error("{} exists already; choose another name or add --force to replace it", .0.display())]
    Exists(PathBuf),
    /// Another process writes it.
    #[error("another draftscope is recording to {}; choose another name", .0.display())]
    Busy(PathBuf),
    /// The file cannot be made.
    #[error("cannot write the trace {}: {source}", path.display())]
    Write {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A recording that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be opened or read.
    #[error("cannot read the trace {name}: {source}")]
    Read {
        /// Which file.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// The first line is not a header.
    #[error("{name} is not a draftscope trace: {why}; record one with --trace FILE")]
    NoHeader {
        /// Which file.
        name: String,
        /// What stands there instead.
        why: String,
    },
    /// A newer program wrote it.
    #[error(
        "{name} has trace format {version}, this program reads up to {TRACE_VERSION}; a newer draftscope can open it"
    )]
    Newer {
        /// Which file.
        name: String,
        /// Its format.
        version: u64,
    },
    /// A line in the middle cannot be read.
    #[error("{name} is damaged at line {line}: {why}; what stands before can be saved with: {} | head -n {} > NEW", shown(name), line - 1)]
    Damaged {
        /// Which file.
        name: String,
        /// Counted from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// Whoever reads was asked to stop.
    #[error("the reading of the recording was stopped before its end")]
    Stopped,
    /// A line that no writer makes.
    #[error(
        "{name} is damaged at line {line}: it is longer than {} MiB; what stands before can be saved with: {} | head -n {} > NEW",
        MAX_LINE_BYTES >> 20, shown(name), line - 1
    )]
    TooLong {
        /// Which file.
        name: String,
        /// Counted from 1.
        line: u64,
    },
}

/// The command that writes the lines of a recording.
fn shown(name: &str) -> &'static str {
    if name.ends_with(".zst") { "zstdcat FILE" } else { "cat FILE" }
}

/// Where a recording stops short of its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The last line is not whole and was left out.
    InLine(u64),
    /// The lines are whole, and the one that ends a run is missing.
    AfterLine(u64),
}

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::InLine(line) => write!(f, "the recording was cut off in line {line}; all before it is here"),
            Self::AfterLine(line) => write!(f, "the recording has no end: it was cut off after line {line}"),
        }
    }
}
