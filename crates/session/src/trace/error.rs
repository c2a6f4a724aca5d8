//! Errors of recordings, one sentence each.

use std::io;
use std::path::PathBuf;

use draftscope_protocol::TRACE_VERSION;

/// Most bytes of a line: enough for a prompt of some hundred thousand tokens.
pub const MAX_LINE_BYTES: usize = 16 << 20;

/// Why a recording cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A file of this name exists.
    #[error("{} exists already; choose another name or add --force to replace it", .0.display())]
    Exists(PathBuf),
    /// Another process writes this file.
    #[error("another draftscope is recording to {}; choose another name", .0.display())]
    Busy(PathBuf),
    /// The file cannot be created.
    #[error("cannot write the trace {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Reason.
        source: io::Error,
    },
}

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be opened or read.
    #[error("cannot read the trace {name}: {source}")]
    Read {
        /// The file.
        name: String,
        /// Reason.
        source: io::Error,
    },
    /// The first line is not a header.
    #[error("{name} is not a draftscope trace: {why}; record one with --trace FILE")]
    NoHeader {
        /// The file.
        name: String,
        /// What the file contains instead.
        why: String,
    },
    /// A newer program wrote it.
    #[error(
        "{name} has trace format {version}, this program reads up to {TRACE_VERSION}; a newer draftscope can open it"
    )]
    Newer {
        /// The file.
        name: String,
        /// Version of its format.
        version: u64,
    },
    /// A line before the last cannot be read.
    #[error("{name} is damaged at line {line}: {why}; save the lines before it with: {} | head -n {} > NEW", shown(name), line - 1)]
    Damaged {
        /// The file.
        name: String,
        /// Number of the line, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// A second recording starts at this line.
    #[error(
        "{name} has several recordings: another one starts at line {line}; separate them with: {0} | head -n {1} > FIRST; {0} | tail -n +{line} > REST",
        shown(name), line - 1
    )]
    Joined {
        /// The file.
        name: String,
        /// Number of the line, from 1.
        line: u64,
    },
    /// Reading was stopped by [`Recording::stopped_by`](super::Recording::stopped_by).
    #[error("reading was stopped before the end of the recording")]
    Stopped,
    /// A line is longer than [`MAX_LINE_BYTES`].
    #[error(
        "{name} is damaged at line {line}: it is longer than {} MiB; save the lines before it with: {} | head -n {} > NEW",
        MAX_LINE_BYTES >> 20, shown(name), line - 1
    )]
    TooLong {
        /// The file.
        name: String,
        /// Number of the line, from 1.
        line: u64,
    },
}

/// The command that prints the lines of a recording.
fn shown(name: &str) -> &'static str {
    if name.ends_with(".zst") { "zstdcat FILE" } else { "cat FILE" }
}

/// Where a recording was cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// This last line is incomplete and was skipped.
    InLine(u64),
    /// All lines up to this one are complete, but the line that ends a run is missing.
    AfterLine(u64),
}

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::InLine(line) => write!(f, "the recording was cut off in line {line}; everything before it was read"),
            Self::AfterLine(line) => write!(f, "the recording has no end: it was cut off after line {line}"),
        }
    }
}
