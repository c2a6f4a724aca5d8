//! Consumers of events that options ask for: the recording, and lines on standard output.

use std::io::{self, BufWriter};
use std::path::Path;

use anyhow::{Result, bail};
use draftscope::cli::{TraceArgs, TraceTextArg};
use draftscope::headless::Jsonl;
use draftscope::protocol::stream::Consumer;
use draftscope::session::trace::{Digested, RecordOptions, Recorder, TextPolicy};

/// The recorder, when a trace was asked for. Made before the model is loaded, so that a path that
/// cannot be written is reported at once.
pub(crate) fn recorder(args: &TraceArgs) -> Result<Option<Recorder>> {
    if args.trace.as_deref() == Some(Path::new("-")) {
        bail!(
            "--trace takes a file, because standard output is used for the answer; --output jsonl writes the same lines there"
        );
    }
    let options = RecordOptions { force: args.force, text: text_policy(args) };
    Ok(args.trace.as_deref().map(|path| Recorder::create(path, options)).transpose()?)
}

/// Writes every event to standard output, under the same policy as the recording.
pub(crate) fn event_stream(args: &TraceArgs) -> Box<dyn Consumer> {
    let lines = Jsonl(BufWriter::new(io::stdout()));
    match text_policy(args) {
        TextPolicy::Full => Box::new(lines),
        TextPolicy::Digest => Box::new(Digested::new(lines)),
    }
}

const fn text_policy(args: &TraceArgs) -> TextPolicy {
    match args.trace_text {
        TraceTextArg::Full => TextPolicy::Full,
        TraceTextArg::Digest => TextPolicy::Digest,
    }
}
