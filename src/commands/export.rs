//! `draftscope export`: a recording as a page, a cast, a picture, a table or a report.

use std::io::{self, BufWriter, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::ValueEnum;
use draftscope::cli::ExportArgs;
use draftscope::export::{self, ExportError, ExportOptions, Format};
use draftscope::session::trace::TraceError;
use draftscope::tui::Theme;

use super::files;
use super::signals::StopSignal;

pub(crate) fn run(args: &ExportArgs) -> Result<ExitCode> {
    let format = format(args)?;
    if args.out.is_none() && args.file.as_os_str() == "-" {
        bail!("a recording from standard input has no name of its own; choose a file with --out");
    }
    let out = args.out.clone().unwrap_or_else(|| next_to(&args.file, format));
    if files::same_file(&out, &args.file) {
        bail!("{} is the recording itself; name another file with --out", out.display());
    }
    if format.is_folder() && contains(&out, &args.file) {
        bail!("{} contains the recording itself; name another folder with --out", out.display());
    }
    if let Some(name) = args.theme.as_deref().filter(|name| !Theme::names().any(|known| known == *name)) {
        let known: Vec<&str> = Theme::names().collect();
        bail!("there is no theme '{name}'; there are: {}", known.join(", "));
    }
    let recording = super::progress::open(&args.file)?;
    ignored(args, format).iter().for_each(|warning| super::output::say(warning));
    let options = options(args);
    // a half-written file is removed when writing is stopped, but not when a signal ends the program
    let stop = StopSignal::listen()?;
    let recording = recording.stopped_by(stop.flag());
    let made = if out.as_os_str() == "-" {
        if format == Format::Jsonl && io::stdout().is_terminal() {
            bail!("jsonl is the recording itself, which is not for a terminal; use a pipe, or --out FILE");
        }
        export::export_to(&recording, format, &mut BufWriter::new(io::stdout().lock()), &options)
    } else {
        export::export(&recording, format, &out, &options)
    };
    match made {
        Err(ExportError::Trace(TraceError::Stopped)) => bail!(stop.stopped()),
        made => made?,
    }
    if out.as_os_str() != "-" {
        super::links::print_path("", &out)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The format asked for, else the one that the name of the file to write says.
fn format(args: &ExportArgs) -> Result<Format> {
    let named = || Format::of_name(&args.out.as_ref()?.file_name()?.to_string_lossy());
    args.to.or_else(named).ok_or_else(|| {
        let endings: Vec<_> = Format::value_variants().iter().map(|format| format.ending()).collect();
        let endings = endings.join(", ");
        anyhow!("which format? name it with --to, or choose a file for --out whose name ends with one of {endings}")
    })
}

fn options(args: &ExportArgs) -> ExportOptions {
    let usual = ExportOptions::default();
    ExportOptions {
        force: args.force,
        at: args.at.map(Duration::from_secs_f64),
        size: args.size.unwrap_or(usual.size),
        theme: args.theme.clone(),
        idle_limit: args.idle_limit.map_or(usual.idle_limit, Duration::from_secs_f64),
    }
}

/// Warnings about options that this format ignores.
fn ignored(args: &ExportArgs, format: Format) -> Vec<String> {
    let is_film = matches!(format, Format::Cast | Format::GifFrames);
    let is_screen = is_film || format == Format::Svg;
    let options = [
        ("--at", args.at.is_some(), format == Format::Svg),
        ("--size", args.size.is_some(), is_screen),
        ("--theme", args.theme.is_some(), is_screen),
        ("--idle-limit", args.idle_limit.is_some(), is_film),
    ];
    let ignored = options.into_iter().filter(|(_, is_given, counts)| *is_given && !*counts);
    ignored.map(|(name, ..)| format!("{name} does nothing here: this format does not use it")).collect()
}

/// Whether a file lies in a folder, however deep.
fn contains(folder: &Path, file: &Path) -> bool {
    match (folder.canonicalize(), file.canonicalize()) {
        (Ok(folder), Ok(file)) => file.starts_with(folder),
        _ => false,
    }
}

/// The recording's path with the format's ending instead of its own.
fn next_to(file: &Path, format: Format) -> PathBuf {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let mut stem = name.as_ref();
    for ending in [".zst", ".jsonl", ".dscope"] {
        stem = stem.strip_suffix(ending).unwrap_or(stem);
    }
    file.with_file_name(format!("{stem}{}", format.ending()))
}
