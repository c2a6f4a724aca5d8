//! A folder of numbered SVG screens with their durations, as input for a program that makes a GIF or a film
//! (`frames.txt` is a list for ffmpeg's concat demuxer).

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use draftscope_session::trace::Recording;

use super::error::WriteError;
use super::options::ExportOptions;
use super::screen::{self, LAST};
use super::svg;

/// The list of all frames.
const LIST: &str = "frames.txt";

/// Whether this format writes a file of this name.
pub(super) fn is_own(name: &str) -> bool {
    let number = name.strip_prefix("frame-").and_then(|rest| rest.strip_suffix(".svg"));
    name == LIST || number.is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()))
}

pub(super) fn write(recording: &Recording, options: &ExportOptions, folder: &Path) -> Result<(), WriteError> {
    let mut list = String::from("ffconcat version 1.0\n");
    let mut shown = None::<(String, Duration)>;
    let mut line = |shown: Option<(String, Duration)>, until: Duration| {
        if let Some((name, at)) = shown {
            let seconds = until.saturating_sub(at).as_secs_f64();
            let _ = writeln!(list, "file '{name}'\nduration {seconds:.6}"); // writing to a String cannot fail
        }
    };
    let mut number = 0;
    screen::film(recording, options, |stage, at, _| {
        number += 1;
        let name = format!("frame-{number:05}.svg");
        fs::write(folder.join(&name), svg::picture(stage, options)?)?;
        line(shown.replace((name, at)), at);
        Ok(())
    })?;
    if let Some((name, at)) = shown {
        line(Some((name, at)), at + LAST);
    }
    Ok(fs::write(folder.join(LIST), list)?)
}
