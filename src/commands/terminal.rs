//! The screen as commands use it: whether there is one, its options, and playing recordings on it.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use draftscope::cli::{LookArgs, PlayArgs, ScreenArgs};
use draftscope::headless::Text;
use draftscope::host::config::UserFiles;
use draftscope::protocol::EventKind;
use draftscope::protocol::stream::{FanOut, Source};
use draftscope::session::text::one_line;
use draftscope::session::trace::replay::{self, ReplayOptions};
use draftscope::session::trace::{Recorder, Recording};
use draftscope::tui::{self, Ended, Playback, TuiOptions};

use super::output::complete;
use super::{files, lessons, quiz_files, reload};

/// Whether there is a terminal that understands more than text.
pub(crate) fn can_draw() -> bool {
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    !dumb && io::stdout().is_terminal() && io::stdin().is_terminal()
}

/// How any screen looks: options, and the user's keys and themes.
pub(crate) fn look(args: &LookArgs, files: &UserFiles) -> TuiOptions {
    let options = TuiOptions::from_env();
    let asks = args.theme.is_none() && !options.no_color;
    let fitting = if asks { tui::fitting_theme() } else { None };
    TuiOptions {
        theme: args.theme.clone(),
        fitting_theme: fitting.map(str::to_owned),
        themes: files.themes.clone(),
        keymap: files.keymap.clone(),
        ascii: args.ascii || options.ascii,
        marks: args.marks,
        no_mouse: args.no_mouse,
        look: if can_draw() { reload::follow(files, args.theme.as_deref()) } else { None },
        warnings: files.warnings.clone(),
        pictures: Some(files::pictures()),
        theme_keeper: Some(files::theme_keeper()),
        quiz: Some(quiz_files::quiz_files()),
        ..options
    }
}

/// How the screen of a run looks.
pub(crate) fn screen(args: &ScreenArgs, files: &UserFiles) -> TuiOptions {
    TuiOptions {
        page: args.view,
        split: args.split,
        save: Some(files::saver()),
        export: Some(files::exporter()),
        recordings: Some(lessons::lessons()),
        lessons: files.lessons.clone(),
        progress: lessons::progress(),
        ..look(&args.look, files)
    }
}

/// Shows a live source on the terminal, and records it if asked to.
pub(crate) fn show(source: Source, options: TuiOptions, recorder: Option<Recorder>) -> Result<ExitCode> {
    let mut consumers = FanOut::default();
    if let Some(recorder) = recorder {
        consumers.add(Box::new(recorder));
    }
    end(tui::run(source, options, consumers)?)
}

fn end(ended: Ended) -> Result<ExitCode> {
    match ended {
        Ended::Quit => Ok(ExitCode::SUCCESS),
        Ended::Failed(message) => bail!("{}", one_line(&message)),
        Ended::Incomplete(dropped) => complete(vec![dropped]).map(|()| ExitCode::SUCCESS),
    }
}

/// Shows recordings on the terminal, at `speed` unless an option sets another; without a
/// terminal, writes their answers as text.
pub(crate) fn play(
    recordings: Vec<Recording>,
    (args, speed, lesson): (&PlayArgs, f32, Option<String>),
    files: &UserFiles,
    consumers: FanOut,
) -> Result<ExitCode> {
    let is_live = can_draw();
    let options = ReplayOptions {
        speed: is_live.then_some(args.speed.unwrap_or(speed)),
        idle_limit: Duration::from_secs_f64(args.idle_limit),
        loops: args.loops && is_live,
        // what plays under a lesson would only distract from it
        is_held: (args.paused || lesson.is_some()) && is_live,
        stays: is_live,
        once: !consumers.is_empty(),
    };
    let mut source = replay::spawn(recordings, options)?;
    if is_live {
        let playback =
            Playback { speed: options.speed.unwrap_or(1.0), idle_limit: options.idle_limit, loops: options.loops };
        let options = TuiOptions { playback: Some(playback), lesson, ..screen(&args.screen, files) };
        return end(tui::run(source, options, consumers)?);
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
    complete(dropped)?;
    Ok(ExitCode::SUCCESS)
}
