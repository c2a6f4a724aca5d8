//! `draftscope replay`: a recording in every view of the program, with no model.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::mpsc::channel;

use anyhow::{Result, bail};
use draftscope::cli::ReplayArgs;
use draftscope::headless::write_json_line;
use draftscope::host::config::UserFiles;
use draftscope::protocol::stream::FanOut;
use draftscope::session::Fleet;
use draftscope::tui::FleetView;

use super::watch_history::History;

pub(crate) fn run(args: &ReplayArgs, files: &UserFiles) -> Result<ExitCode> {
    if let Some(history) = super::watch_history::read(&args.file)? {
        return watched(args, history, files);
    }
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

/// The history of a watch: on the terminal at any of its moments, else as the lines of `attach --watch --json`.
fn watched(args: &ReplayArgs, history: History, files: &UserFiles) -> Result<ExitCode> {
    if args.trace.trace.is_some() {
        bail!("{} is the history of a watch, which has no rounds to record; leave out --trace", args.file.display());
    }
    if history.is_cut {
        super::output::say("a part of this history cannot be read, and is left out");
    }
    if super::terminal::can_draw() {
        let look = super::terminal::look(&args.play.screen.look, files);
        let (_, nothing) = channel();
        FleetView::history(history.servers, history.samples, look).run(&nothing)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (mut fleet, mut out) = (Fleet::new(history.servers), io::stdout().lock());
    for sample in history.samples {
        let server = sample.server;
        fleet.take(sample);
        if let Some(line) = fleet.line(server) {
            write_json_line(&mut out, &line)?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
