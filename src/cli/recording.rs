//! Whether and how a run is recorded.

use std::path::PathBuf;

use clap::Args;

use super::values::TraceTextArg;

/// Where to record to.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Recording")]
pub struct TraceArgs {
    /// Record all events to this file as JSON lines; compressed if it ends in .zst
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Prompts and answers in the recording, and in the events that --output jsonl writes: as they are, or as digests
    #[arg(long, value_enum, default_value_t = TraceTextArg::Full)]
    pub trace_text: TraceTextArg,
    /// Replace the file if it exists
    #[arg(long)]
    pub force: bool,
}
