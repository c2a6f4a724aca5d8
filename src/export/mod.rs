//! A recording as something else: a page, a cast, a picture, a table, a report. One file per format.
//!
//! Invariant: what stands under the wanted name is whole (it is written beside it and renamed), and
//! nothing in a recording can act where it is shown: control characters become pictures, and text is
//! escaped for the format it stands in. Every number is the session's; nothing is measured here.

mod atomic_file;
mod cast;
mod csv;
mod frames;
mod html;
mod jsonl;
mod markdown;
mod perfetto;
mod screen;
#[cfg(feature = "specspecs")]
mod specspecs;
mod svg;
#[cfg(test)]
mod tests;
mod vllm;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;

use crate::protocol::{Event, EventKind, Header, Lane, Settings};
use crate::session::{Session, header_diff, text};
use crate::trace::{Recording, TraceError};

/// Settings that reports name whatever they are.
const NAMED: [&str; 5] = ["drafter", "k", "rule", "temperature", "seed"];

/// What was set otherwise than usual, but for what reports name of themselves.
fn changed(header: &Header) -> Option<String> {
    let usual = Header { settings: Settings::default(), ..header.clone() };
    let told = header_diff(&usual, header).into_iter().filter(|(name, ..)| !NAMED.contains(&name.as_str()));
    let told: Vec<String> = told.map(|(name, _, value)| format!("{name} {value}")).collect();
    (!told.is_empty()).then(|| told.join(", "))
}

/// What raced beside the run: its settings, those in which its rounds differed all told.
fn rivals(session: &Session) -> String {
    let rounds = session.turns().iter().flat_map(|turn| &turn.answer(Lane::Rival).rounds);
    let mut told: Vec<String> = Vec::new();
    for round in rounds {
        let one = format!("k = {}, {}, temperature {}", round.draft_len, round.judged_by(), round.sampling.temperature);
        if told.len() < 4 && !told.contains(&one) {
            told.push(one);
        }
    }
    let known = session.settings().rival.or_else(|| session.header()?.settings.rival);
    told.extend(known.map(|rival| format!("drafts by {}", rival.drafter)));
    told.join("; ")
}

/// What to make of a recording. The command line and the screen list formats in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One self-contained page: transcript, token cards, rounds, plots, player.
    Html,
    /// asciicast v3 of the screen, for asciinema.
    Cast,
    /// One screen as a picture.
    Svg,
    /// The screens as numbered SVG pictures with their durations.
    GifFrames,
    /// Chrome trace events, for ui.perfetto.dev.
    Perfetto,
    /// One row per drafted position.
    Csv,
    /// A report to read.
    #[value(name = "md")]
    Markdown,
    /// vLLM's per-request speculative-decoding summary.
    VllmJson,
    /// Two Parquet tables as the Python package specspecs reads them; in builds with the feature `specspecs`.
    Specspecs,
    /// The recording again, line by line: what was cut off is left out; compressed to a .zst name.
    Jsonl,
}

impl Format {
    /// Whether it is a folder of files.
    #[must_use]
    pub const fn is_folder(self) -> bool {
        matches!(self, Self::GifFrames | Self::Specspecs)
    }

    /// How a name of this format ends.
    #[must_use]
    pub const fn ending(self) -> &'static str {
        match self {
            Self::Html => ".html",
            Self::Cast => ".cast",
            Self::Svg => ".svg",
            Self::GifFrames => ".frames",
            Self::Perfetto => ".perfetto.json",
            Self::Csv => ".csv",
            Self::Markdown => ".md",
            Self::VllmJson => ".vllm.json",
            Self::Specspecs => ".specspecs",
            Self::Jsonl => ".whole.dscope.jsonl",
        }
    }
}

/// What formats need to know beside the recording.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// Replace what is there.
    pub force: bool,
    /// Moment a picture shows, since the run began; none is the end.
    pub at: Option<Duration>,
    /// Columns and rows of the screen.
    pub size: (u16, u16),
    /// Colours of the screen.
    pub theme: Option<String>,
    /// Longest wait between two frames.
    pub idle_limit: Duration,
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self { force: false, at: None, size: (120, 40), theme: None, idle_limit: Duration::from_secs(2) }
    }
}

/// An export that did not come about; nothing was left behind.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// There is something of this name.
    #[error("{} exists already; choose another name or add --force to replace it", .0.display())]
    Exists(PathBuf),
    /// It cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The recording cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// What is there is not this program's to replace; it was not touched.
    #[error("{} is not replaced, because {why}; choose another name with --out", path.display())]
    InTheWay {
        /// What.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Many files, where only one can go.
    #[error("this format makes a folder, and only a file can go to standard output; name a folder with --out")]
    Folder,
    /// There is nothing in the recording that the format shows.
    #[error("the recording holds no {0}, so there is nothing to export")]
    Nothing(&'static str),
    /// The format needs a feature that this program was built without.
    #[error("this program was built without {0}; build it with `cargo install --path . --features {0}`")]
    NotBuilt(&'static str),
}

/// Why writing stopped: the disk, or the recording.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("{0}")]
    InTheWay(String),
    #[error("nothing")]
    Nothing(&'static str),
}

/// Writes a recording in another format.
///
/// # Errors
/// When the recording cannot be read, there is something of that name, or it cannot be written.
pub fn export(recording: &Recording, format: Format, to: &Path, options: &ExportOptions) -> Result<(), ExportError> {
    match format {
        Format::GifFrames => {
            atomic_file::folder(to, options.force, frames::is_own, |folder| frames::write(recording, options, folder))
        }
        #[cfg(feature = "specspecs")]
        Format::Specspecs => atomic_file::folder(to, options.force, specspecs::is_own, |folder| {
            specspecs::write(recording, &fold(recording)?, folder)
        }),
        #[cfg(not(feature = "specspecs"))]
        Format::Specspecs => return Err(ExportError::NotBuilt("specspecs")),
        _ => atomic_file::file(to, options.force, |out| write(recording, format, options, out)),
    }
    .map_err(|stop| export_error(stop, to))
}

/// Writes a recording in another format to where it is wanted at once, such as standard output.
///
/// # Errors
/// When the recording cannot be read, the format makes a folder, or nothing can be written.
pub fn export_to(
    recording: &Recording,
    format: Format,
    out: &mut dyn Write,
    options: &ExportOptions,
) -> Result<(), ExportError> {
    if format.is_folder() {
        return Err(ExportError::Folder);
    }
    let done = write(recording, format, options, out).and_then(|()| Ok(out.flush()?));
    done.map_err(|stop| export_error(stop, Path::new("standard output")))
}

/// Writes a file that appears whole or not at all.
///
/// # Errors
/// When there is one (unless replaced by `force`) or it cannot be written.
pub fn write_file(path: &Path, force: bool, bytes: &[u8]) -> Result<(), ExportError> {
    atomic_file::file(path, force, |out| Ok(out.write_all(bytes)?)).map_err(|stop| export_error(stop, path))
}

/// Whether [`write_file`] could write there now, for whoever measures long before there is something to write.
///
/// # Errors
/// [`ExportError`] when it exists (unless replaced by `force`) or nothing can be written there.
pub fn try_file(path: &Path, force: bool) -> Result<(), ExportError> {
    let failed = |source| ExportError::Write { path: path.to_owned(), source };
    match path.metadata() {
        Ok(_) if !force => return Err(ExportError::Exists(path.to_owned())),
        Ok(there) if there.is_dir() => return Err(failed(io::ErrorKind::IsADirectory.into())),
        Ok(there) if !there.is_file() => return Ok(()), // a device or a pipe takes what comes
        _ => {}
    }
    let whole = std::path::absolute(path).map_err(failed)?;
    let folder = whole.parent().unwrap_or(Path::new("/"));
    tempfile::tempfile_in(folder).map(drop).map_err(failed)
}

fn export_error(stop: Stop, to: &Path) -> ExportError {
    match stop {
        Stop::Io(source) if source.kind() == io::ErrorKind::AlreadyExists => ExportError::Exists(to.to_owned()),
        Stop::Io(source) => ExportError::Write { path: to.to_owned(), source },
        Stop::Trace(error) => ExportError::Trace(error),
        Stop::InTheWay(why) => ExportError::InTheWay { path: to.to_owned(), why },
        Stop::Nothing(what) => ExportError::Nothing(what),
    }
}

fn write(
    recording: &Recording,
    format: Format,
    options: &ExportOptions,
    out: atomic_file::Out<'_>,
) -> Result<(), Stop> {
    match format {
        Format::Html => Ok(html::write(&fold(recording)?, recording, out)?),
        Format::Cast => cast::write(recording, options, out),
        Format::Svg => svg::write(recording, options, out),
        Format::Perfetto => perfetto::write(recording, out),
        Format::Csv => csv::write(&fold(recording)?, out),
        Format::Markdown => Ok(markdown::write(&fold(recording)?, recording, out)?),
        Format::VllmJson => vllm::write(&fold(recording)?, out),
        Format::Jsonl => jsonl::write(recording, out),
        Format::GifFrames | Format::Specspecs => Ok(()), // folders
    }
}

/// All that happened in a recording.
fn fold(recording: &Recording) -> Result<Session, TraceError> {
    let mut session = Session::new();
    for event in recording.events()? {
        session.apply(&as_replayed(event?, recording));
    }
    Ok(session)
}

/// An event as a replay would send it: the source takes no prompts.
fn as_replayed(mut event: Event, recording: &Recording) -> Event {
    if let EventKind::Started { header } = &mut event.kind {
        header.capabilities.can_generate = false;
        header.capabilities.ends_at_us = Some(recording.ends_at_us());
    }
    event
}

/// Writes a JSON value and a newline.
fn write_json(out: &mut dyn Write, value: &impl serde::Serialize) -> io::Result<()> {
    writeln!(out, "{}", escaped(&serde_json::to_string(value)?))
}

/// JSON of one line with its characters that a terminal would obey escaped: serde_json escapes those
/// below U+0020 alone.
fn escaped(json: &str) -> String {
    json.chars().fold(String::with_capacity(json.len()), |mut out, c| {
        match text::picture(c) {
            Some(_) => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            None => out.push(c),
        }
        out
    })
}
