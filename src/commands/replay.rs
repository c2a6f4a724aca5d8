//! `draftscope replay`: a recording in every view of the program, with no model.

use std::process::ExitCode;

use anyhow::{Result, bail};
use draftscope::cli::ReplayArgs;
use draftscope::config::UserFiles;
use draftscope::stream::FanOut;

pub(crate) fn run(args: &ReplayArgs, files: &UserFiles) -> Result<ExitCode> {
    let recording = super::progress::open(&args.file)?;
    if let Some(trace) = &args.trace.trace {
        if args.play.loops {
            bail!("--loop never ends, so it cannot be recorded; leave out --trace or --loop");
        }
        if super::files::same_file(trace, &args.file) {
            bail!("{} is the recording itself; name another file with --trace", trace.display());
        }
    }
    let mut consumers = FanOut::default();
    if let Some(recorder) = super::trace::recorder(&args.trace)? {
        consumers.add(Box::new(recorder));
    }
    super::terminal::play(vec![recording], (&args.play, 1.0, None), files, consumers)
}
