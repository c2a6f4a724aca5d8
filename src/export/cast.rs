//! asciicast v3: the bytes that draw the screen in a terminal, with markers at rejections.

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;
use std::time::Duration;

use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use serde_json::json;

use draftscope_session::trace::Recording;

use super::atomic_file::Out;
use super::error::WriteError;
use super::json_line::write_json;
use super::options::ExportOptions;
use super::screen::{self, LAST};

/// Hides the cursor and clears the screen.
const BEGIN: &str = "\u{1b}[?25l\u{1b}[2J\u{1b}[H";

/// Collects the bytes for the terminal; emptied after each frame.
#[derive(Clone, Default)]
struct Tape(Rc<RefCell<Vec<u8>>>);

impl Write for Tape {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Tape {
    fn take(&self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut *self.0.borrow_mut())).into_owned()
    }
}

pub(super) fn write(recording: &Recording, options: &ExportOptions, out: Out<'_>) -> Result<(), WriteError> {
    // the file has colours even if the terminal of this process has none
    crossterm::style::force_color_output(true);
    let (cols, rows) = options.size;
    let header = recording.header();
    write_json(
        out,
        &json!({
            "version": 3,
            "term": {"cols": cols, "rows": rows, "type": "xterm-256color"},
            "timestamp": header.started_unix_ms / 1000,
            "title": format!("draftscope: {}", draftscope_session::text::one_line(&header.model.name)),
        }),
    )?;
    let tape = Tape::default();
    let viewport = Viewport::Fixed(Rect::new(0, 0, cols, rows));
    let mut terminal = Terminal::with_options(CrosstermBackend::new(tape.clone()), TerminalOptions { viewport })?;
    let mut last = Duration::ZERO;
    let mut event = |out: &mut dyn Write, at: Duration, code: &str, data: &str| {
        let interval = at.saturating_sub(last);
        last = last.max(at);
        write_json(out, &json!([(interval.as_secs_f64() * 1e6).round() / 1e6, code, data]))
    };
    let mut end = Duration::ZERO;
    event(out, end, "o", BEGIN)?;
    screen::film(recording, options, |stage, at, markers| {
        stage.draw(&mut terminal)?;
        for marker in markers {
            event(out, marker.at, "m", &marker.label)?;
        }
        event(out, at, "o", &tape.take())?;
        end = at;
        Ok(())
    })?;
    Ok(event(out, end + LAST, "o", "\u{1b}[0m")?)
}
