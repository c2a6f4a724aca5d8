//! Files that keys of the screen write (the session as a trace, or exported), and a check that two paths name one file.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use clap::ValueEnum;
use draftscope::export::{self, ExportOptions, Format};
use draftscope::host::{config, file_access};
use draftscope::protocol::Event;
use draftscope::session::Session;
use draftscope::session::trace::Recording;
use draftscope::tui::{Exporter, Pictures, Saver, ThemeKeeper};
use etcetera::BaseStrategy;
use ratatui::buffer::Buffer;

/// A file in the user's folder for state; `None` where there is no place for it.
pub(crate) fn state_file(name: &str) -> Option<PathBuf> {
    let base = etcetera::choose_base_strategy().ok()?;
    let state = base.state_dir().unwrap_or_else(|| base.data_dir());
    Some(state.join("draftscope").join(name))
}

/// Saves the session as a trace in the current folder.
pub(crate) fn saver() -> Saver {
    Saver(Rc::new(saved))
}

fn saved(events: &mut dyn Iterator<Item = &Event>) -> Result<String, String> {
    let name = save(events).map_err(|error| format!("the session was not saved: {error:#}"))?;
    Ok(format!("saved as {name}"))
}

/// Exports it into the current folder, in any format of `draftscope export`.
pub(crate) fn exporter() -> Exporter {
    let shown = |format: &Format| {
        let value = format.to_possible_value()?;
        Some((value.get_name().to_owned(), value.get_help().map(ToString::to_string).unwrap_or_default()))
    };
    Exporter { formats: Format::value_variants().iter().filter_map(shown).collect(), write: Rc::new(exported) }
}

fn exported(index: usize, events: &mut dyn Iterator<Item = &Event>) -> Result<String, String> {
    let path = write(index, events).map_err(|error| format!("the session was not exported: {error:#}"))?;
    Ok(format!("exported to {}", path.display()))
}

/// Writes the screen as pictures into the current folder.
pub(crate) fn pictures() -> Pictures {
    Pictures(Rc::new(pictured))
}

/// Keeps the chosen theme in the configuration file.
pub(crate) fn theme_keeper() -> ThemeKeeper {
    ThemeKeeper(Rc::new(|name| {
        let path = config::path().ok_or("the theme is not kept: this user has no configuration folder")?;
        match config::set(&path, "theme", name) {
            Ok(()) => Ok(format!("theme: {name}, kept in {}", path.display())),
            Err(error) => Err(format!("theme: {name}, but {} was not written: {error}", path.display())),
        }
    }))
}

fn pictured(screen: &Buffer) -> Result<String, String> {
    let written = export::write_pictures(screen, &Path::new(".").join(fresh_name()));
    let [svg, png] = written.map_err(|error| format!("no picture was written: {error}"))?;
    Ok(format!("pictures written: {} and {}", svg.display(), png.display()))
}

/// A new name without its ending, from the seconds since 1970.
fn fresh_name() -> String {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("draftscope-{}", since_1970.as_secs())
}

fn save(events: &mut dyn Iterator<Item = &Event>) -> Result<String> {
    let name = format!("{}.dscope.jsonl", fresh_name());
    written(Format::Jsonl, Path::new(&name), events)?;
    Ok(name)
}

fn write(index: usize, events: &mut dyn Iterator<Item = &Event>) -> Result<PathBuf> {
    let format = *Format::value_variants().get(index).context("there is no such format")?;
    let path = Path::new(".").join(format!("{}{}", fresh_name(), format.ending()));
    written(format, &path, events)?;
    Ok(path)
}

fn written(format: Format, path: &Path, events: &mut dyn Iterator<Item = &Event>) -> Result<()> {
    // beside the result: the system's folder for temporary files may be missing or small
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = file_access::private_file_in(folder);
    let mut file = file.with_context(|| format!("cannot write into {}", folder.display()))?;
    lines(events, file.as_file_mut())?;
    let recording = Recording::open(file.path())?;
    Ok(export::export(&recording, format, path, &ExportOptions::default())?)
}

/// Writes a line for each event and, if the run has not ended yet, one for its end.
fn lines(events: &mut dyn Iterator<Item = &Event>, file: &mut std::fs::File) -> Result<()> {
    let mut out = io::BufWriter::new(file);
    let mut session = Session::new();
    let mut line = |event: &Event| -> Result<()> {
        serde_json::to_writer(&mut out, event)?;
        Ok(out.write_all(b"\n")?)
    };
    for event in events {
        session.apply(event);
        line(event)?;
    }
    session.end().as_ref().map(line).transpose()?;
    Ok(out.flush()?)
}

/// Whether both paths exist and are the same file, also under two names.
#[cfg(unix)]
pub(crate) fn same_file(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (a.metadata(), b.metadata()) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

/// Whether both paths exist and are the same file.
#[cfg(not(unix))]
pub(crate) fn same_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}
