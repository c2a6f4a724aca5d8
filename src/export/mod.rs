//! Exports a recording to another format: page, cast, picture, table or report. One file per format.
//!
//! Invariant: an output file is always complete, since it is written under a temporary name and renamed. No text of a
//! recording can act as code: control characters are replaced by pictures, and text is escaped for its format. Every
//! number comes from the session; nothing is measured here.

mod as_replayed;
mod atomic_file;
mod bench;
mod cast;
mod colors;
mod csv;
mod error;
mod frames;
mod html;
mod json_line;
mod jsonl;
mod lesson_page;
mod lesson_sheet;
mod lessons;
mod markdown;
mod options;
mod page_frame;
mod perfetto;
mod png;
mod run_settings;
mod screen;
#[cfg(feature = "specspecs")]
mod specspecs;
mod svg;
#[cfg(test)]
mod tests;
mod vllm;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use ratatui::buffer::Buffer;

use draftscope_session::Session;
use draftscope_session::trace::{Recording, TraceError};

use as_replayed::as_replayed;
pub use bench::bench_page;
pub use error::ExportError;
use error::WriteError;
pub use lessons::{Read, lesson_pages, quiz_pages};
pub use options::ExportOptions;

/// Export formats, in the order in which help and screen list them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One self-contained page: transcript, token cards, rounds, plots, player.
    Html,
    /// asciicast v3 of the screen, for asciinema.
    Cast,
    /// One screen as an SVG picture.
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
    /// Two Parquet tables for the Python package specspecs; needs a build with the feature `specspecs`.
    Specspecs,
    /// A copy of the recording without an incomplete last line; compressed if the name ends in .zst.
    Jsonl,
}

impl Format {
    /// Whether the output is a folder of files.
    #[must_use]
    pub const fn is_folder(self) -> bool {
        matches!(self, Self::GifFrames | Self::Specspecs)
    }

    /// Usual ending of a file name of this format.
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

    /// The format that a file of this name has.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        let name = name.to_lowercase();
        let is_copy = [".jsonl", ".jsonl.zst"].iter().any(|ending| name.ends_with(ending));
        let named = Self::value_variants().iter().find(|format| name.ends_with(format.ending())).copied();
        named.or(is_copy.then_some(Self::Jsonl))
    }
}

/// Writes a recording in another format.
///
/// # Errors
/// When the recording cannot be read, the output exists already, or it cannot be written.
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
    .map_err(|error| error.at(to))
}

/// Writes a recording in another format to a stream, such as standard output.
///
/// # Errors
/// When the recording cannot be read, the format makes a folder, or the stream cannot be written.
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
    done.map_err(|error| error.at(Path::new("standard output")))
}

/// Writes a file whole or not at all.
///
/// # Errors
/// When it exists (unless `force` replaces it) or cannot be written.
pub fn write_file(path: &Path, force: bool, bytes: &[u8]) -> Result<(), ExportError> {
    atomic_file::file(path, force, |out| Ok(out.write_all(bytes)?)).map_err(|error| error.at(path))
}

/// Writes a screen as two pictures, STEM.svg and STEM.png, each whole or not at all; their names.
///
/// # Errors
/// When a file of that name exists or cannot be written.
pub fn write_pictures(screen: &Buffer, stem: &Path) -> Result<[PathBuf; 2], ExportError> {
    let [svg, png] = ["svg", "png"].map(|ending| stem.with_extension(ending));
    let drawn = png::picture(screen).map_err(|source| ExportError::Write { path: png.clone(), source })?;
    write_file(&svg, false, svg::with_font(&svg::svg(screen)).as_bytes())?;
    write_file(&png, false, &drawn)?;
    Ok([svg, png])
}

/// Checks that [`write_file`] could write there now: for callers that measure for long before they write.
///
/// # Errors
/// [`ExportError`] when the file exists (unless `force` replaces it) or cannot be written.
pub fn try_file(path: &Path, force: bool) -> Result<(), ExportError> {
    let failed = |source| ExportError::Write { path: path.to_owned(), source };
    match path.metadata() {
        Ok(_) if !force => return Err(ExportError::Exists(path.to_owned())),
        Ok(there) if there.is_dir() => return Err(failed(io::ErrorKind::IsADirectory.into())),
        Ok(there) if !there.is_file() => return Ok(()), // a device or a pipe
        _ => {}
    }
    let whole = std::path::absolute(path).map_err(failed)?;
    let folder = whole.parent().unwrap_or(Path::new("/"));
    tempfile::tempfile_in(folder).map(drop).map_err(failed)
}

fn write(
    recording: &Recording,
    format: Format,
    options: &ExportOptions,
    out: atomic_file::Out<'_>,
) -> Result<(), WriteError> {
    match format {
        Format::Html => Ok(html::write(&fold_into(html::session(), recording)?, recording, out)?),
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

/// Replays a whole recording into a session.
fn fold(recording: &Recording) -> Result<Session, TraceError> {
    fold_into(Session::new(), recording)
}

fn fold_into(mut session: Session, recording: &Recording) -> Result<Session, TraceError> {
    for event in recording.events()? {
        session.apply(&as_replayed(event?, recording));
    }
    Ok(session)
}
