//! `draftscope replay`: a recording in every view of the program, with no model.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use draftscope::cli::{PlayArgs, ReplayArgs};
use draftscope::config::UserFiles;
use draftscope::headless::Text;
use draftscope::protocol::EventKind;
use draftscope::session::text::one_line;
use draftscope::stream::FanOut;
use draftscope::trace::Recording;
use draftscope::trace::replay::{self, ReplayOptions};
use draftscope::tui::{self, Ended, Playback, TuiOptions};

pub(crate) fn run(args: &ReplayArgs, files: &UserFiles) -> Result<ExitCode> {
    let recording = super::progress::open(&args.file)?;
    if let Some(trace) = &args.trace.trace {
        if args.play.loops {
            bail!("--loop has no end to record; leave out --trace or --loop");
        }
        if super::same_file(trace, &args.file) {
            bail!("{} is the recording itself; name another file with --trace", trace.display());
        }
    }
    let mut consumers = FanOut::default();
    if let Some(recorder) = super::recorder(&args.trace)? {
        consumers.add(Box::new(recorder));
    }
    play(vec![recording], (&args.play, 1.0), files, consumers)
}

/// Shows recordings on the terminal, at `speed` unless another was asked for; where there is no
/// terminal, writes their answers as text.
pub(crate) fn play(
    recordings: Vec<Recording>,
    (args, speed): (&PlayArgs, f32),
    files: &UserFiles,
    consumers: FanOut,
) -> Result<ExitCode> {
    let is_live = super::chat::can_draw();
    let options = ReplayOptions {
        speed: is_live.then_some(args.speed.unwrap_or(speed)),
        idle_limit: Duration::from_secs_f64(args.idle_limit),
        loops: args.loops && is_live,
        is_held: args.paused && is_live,
        stays: is_live,
        once: !consumers.is_empty(),
    };
    let mut source = replay::spawn(recordings, options)?;
    if is_live {
        let playback =
            Playback { speed: options.speed.unwrap_or(1.0), idle_limit: options.idle_limit, loops: options.loops };
        let options = TuiOptions { playback: Some(playback), ..super::chat::screen(&args.screen, files) };
        return match tui::run(source, options, consumers)? {
            Ended::Quit => Ok(ExitCode::SUCCESS),
            Ended::Failed(message) => bail!("{}", one_line(&message)),
            Ended::Incomplete(dropped) => super::complete(vec![dropped]).map(|()| ExitCode::SUCCESS),
        };
    }
    let mut consumers = consumers;
    consumers.add(Box::new(Text::new(io::stdout(), !io::stdout().is_terminal())));
    let mut dropped = Vec::new();
    while let Some(event) = source.events.blocking_recv() {
        dropped.extend(consumers.event(&event));
        if let EventKind::Failed { message } = event.kind {
            bail!("{}", one_line(&message));
        }
    }
    dropped.extend(consumers.finish());
    super::complete(dropped)?;
    Ok(ExitCode::SUCCESS)
}
