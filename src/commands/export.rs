//! `draftscope export`: a recording as a page, a cast, a picture, a table or a report.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use draftscope::cli::{ExportArgs, FormatArg};
use draftscope::export::{self, ExportOptions, Format};
use draftscope::tui::Theme;

pub(crate) fn run(args: &ExportArgs) -> Result<ExitCode> {
    let format = format(args.to);
    let out = args.out.clone().unwrap_or_else(|| beside(&args.file, format));
    if super::same_file(&out, &args.file) {
        bail!("{} is the recording itself; name another file with --out", out.display());
    }
    if let Some(name) = args.theme.as_deref().filter(|name| !Theme::names().any(|known| known == *name)) {
        let known: Vec<&str> = Theme::names().collect();
        bail!("there is no theme '{name}'; there are: {}", known.join(", "));
    }
    let recording = super::progress::open(&args.file)?;
    let options = ExportOptions {
        force: args.force,
        at: args.at.map(Duration::from_secs_f64),
        size: args.size,
        theme: args.theme.clone(),
        idle_limit: Duration::from_secs_f64(args.idle_limit),
    };
    export::export(&recording, format, &out, &options)?;
    println!("{}", out.display());
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn format(arg: FormatArg) -> Format {
    match arg {
        FormatArg::Html => Format::Html,
        FormatArg::Cast => Format::Cast,
        FormatArg::Svg => Format::Svg,
        FormatArg::GifFrames => Format::GifFrames,
        FormatArg::Perfetto => Format::Perfetto,
        FormatArg::Csv => Format::Csv,
        FormatArg::Md => Format::Markdown,
        FormatArg::VllmJson => Format::VllmJson,
        FormatArg::Specspecs => Format::Specspecs,
        FormatArg::Jsonl => Format::Jsonl,
    }
}

/// The recording's name without its endings, and the format's.
fn beside(file: &Path, format: Format) -> PathBuf {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let mut stem = name.as_ref();
    for ending in [".zst", ".jsonl", ".dscope"] {
        stem = stem.strip_suffix(ending).unwrap_or(stem);
    }
    file.with_file_name(format!("{stem}{}", format.ending()))
}
