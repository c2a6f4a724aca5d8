//! Options of the front end, set by its caller.

use std::fmt;
use std::rc::Rc;

use ratatui::buffer::Buffer;

use draftscope_protocol::Event;

use crate::app::clock::pace::Pace;
use crate::app::clock::playback::Playback;
use crate::app::place::page::Page;
use crate::look::display::Marks;
use crate::terminal::color_depth::ColorDepth;

/// Writes events somewhere; returns a sentence for the screen, on success or failure.
pub type Write = dyn Fn(&mut dyn Iterator<Item = &Event>) -> Result<String, String>;

/// How a session is saved: supplied by the caller, because the front end knows no files.
#[derive(Clone)]
pub struct Saver(pub Rc<Write>);

impl fmt::Debug for Saver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Saver")
    }
}

/// Writes events somewhere in the format of this index.
pub type WriteAs = dyn Fn(usize, &mut dyn Iterator<Item = &Event>) -> Result<String, String>;

/// How a session is exported: supplied by the caller, like [`Saver`].
#[derive(Clone)]
pub struct Exporter {
    /// Name of each format, and a short description.
    pub formats: Vec<(String, String)>,
    /// Writes one of them; returns where.
    pub write: Rc<WriteAs>,
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter").field("formats", &self.formats).finish_non_exhaustive()
    }
}

/// Writes what is on the screen; returns a sentence for it, on success or failure.
pub type WriteScreen = dyn Fn(&Buffer) -> Result<String, String>;

/// How a picture of the screen is written: supplied by the caller, like [`Saver`].
#[derive(Clone)]
pub struct Pictures(pub Rc<WriteScreen>);

impl fmt::Debug for Pictures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pictures")
    }
}

/// Keeps a name for later starts; returns a sentence for the screen, on success or failure.
pub type KeepName = dyn Fn(&str) -> Result<String, String>;

/// How a chosen theme is kept: supplied by the caller, like [`Saver`].
#[derive(Clone)]
pub struct ThemeKeeper(pub Rc<KeepName>);

impl fmt::Debug for ThemeKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ThemeKeeper")
    }
}

/// The events of a bundled recording, by name, or why there are none.
pub type Read = dyn Fn(&str) -> Result<Vec<Event>, String>;

/// Recordings for lessons without an engine: supplied by the caller.
#[derive(Clone)]
pub struct Recordings(pub Rc<Read>);

impl fmt::Debug for Recordings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recordings")
    }
}

/// Keeps the record of what was done in the lessons; or says why not.
pub type Keep = dyn Fn(&str) -> Result<(), String>;

/// What was done in the lessons, kept between runs by the caller, because files are unknown here.
#[derive(Clone)]
pub struct KeptProgress {
    /// The record as it was read.
    pub text: String,
    /// Replaces it.
    pub write: Rc<Keep>,
}

impl fmt::Debug for KeptProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptProgress").field("text", &self.text).finish_non_exhaustive()
    }
}

/// The program runs for the first time; called once this was used, so that the next start is not the first.
#[derive(Clone)]
pub struct FirstStart(pub Rc<dyn Fn()>);

impl fmt::Debug for FirstStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FirstStart")
    }
}

/// Writes a text to a file of its own; the answer is a sentence for the screen, good or bad.
pub type WriteText = dyn Fn(&str) -> Result<String, String>;

/// Files of the quiz: given by the caller, as [`Saver`] is.
#[derive(Clone)]
pub struct QuizFiles {
    /// The text of the kept results; none if nothing is kept.
    pub read: Rc<dyn Fn() -> Option<String>>,
    /// Keeps results in place of those kept before.
    pub keep: Rc<Keep>,
    /// Writes a certificate to a file of its own; the answer is a sentence for the screen, good or bad.
    pub write_certificate: Rc<WriteText>,
}

impl fmt::Debug for QuizFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QuizFiles")
    }
}

/// What the user's files say about looks and keys. Read again when they change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserLook {
    /// Name of the theme in the configuration file, unless an option chose another one.
    pub theme: Option<String>,
    /// Name and text of each theme.
    pub themes: Vec<(String, String)>,
    /// Text of the keymap.
    pub keymap: Option<String>,
    /// A sentence about each part of the files that was not understood.
    pub warnings: Vec<String>,
}

/// Options of the front end.
#[derive(Clone, Debug, Default)]
pub struct TuiOptions {
    /// The system prompt, sent first in every conversation.
    pub system: Option<String>,
    /// Send prompts as they are, without a chat template and without earlier turns.
    pub raw: bool,
    /// Name of a theme; else `default`, which is dark, or `mono` when `no_color`.
    pub theme: Option<String>,
    /// Name of the theme that fits the terminal's background, if it reports it: used where no theme is named. The screen then
    /// follows that background.
    pub fitting_theme: Option<String>,
    /// Themes of the user: name and text of the file. They may replace bundled ones.
    pub themes: Vec<(String, String)>,
    /// Text of the user's keymap, whose lines precede the bundled ones.
    pub keymap: Option<String>,
    /// A prompt to send as soon as the source takes one.
    pub initial_prompt: Option<String>,
    /// The view to begin with.
    pub page: Page,
    /// Start with plain and speculative side by side.
    pub split: bool,
    /// No colour, whatever the theme (`NO_COLOR`).
    pub no_color: bool,
    /// When fates have marks in the live display of an answer.
    pub marks: Marks,
    /// Only characters of ASCII.
    pub ascii: bool,
    /// Leave the mouse to the terminal.
    pub no_mouse: bool,
    /// How many colours the terminal shows.
    pub depth: ColorDepth,
    /// Delivers what the user's files say now, whenever they change.
    pub look: Option<tokio::sync::watch::Receiver<UserLook>>,
    /// Shown once at the start, e.g. warnings about configuration.
    pub warnings: Vec<String>,
    /// How fast answers go on; a slow start is for the first one.
    pub pace: Pace,
    /// Save the session on quitting.
    pub autosave: bool,
    /// The session is being recorded to a file: there is nothing to save.
    pub is_recorded: bool,
    /// Begin with a tour of the screen, and report it to the caller.
    pub tour: Option<FirstStart>,
    /// How a recording plays; `None` for a live engine.
    pub playback: Option<Playback>,
    /// Writes the session to a file.
    pub save: Option<Saver>,
    /// Exports the session.
    pub export: Option<Exporter>,
    /// Writes pictures of the screen.
    pub pictures: Option<Pictures>,
    /// Keeps a theme by its name for later starts.
    pub theme_keeper: Option<ThemeKeeper>,
    /// Plays lessons without an engine.
    pub recordings: Option<Recordings>,
    /// Lessons of the user: name and text of the file. They are listed after the bundled ones.
    pub lessons: Vec<(String, String)>,
    /// The lesson to begin with, by its number or name.
    pub lesson: Option<String>,
    /// What can be done without an engine: shown where the engine cannot begin.
    pub without_engine: Option<String>,
    /// Keeps what was done in the lessons.
    pub progress: Option<KeptProgress>,
    /// Keeps results of the quiz and writes its certificate.
    pub quiz: Option<QuizFiles>,
}

/// Whether a locale is one of UTF-8 by its name: `de_DE.UTF-8`, `C.utf8@euro`, and `UTF-8` alone, as macOS has it.
fn is_utf8(locale: &str) -> bool {
    let codeset = locale.split('@').next().unwrap_or_default().rsplit('.').next().unwrap_or_default();
    ["utf-8", "utf8"].iter().any(|name| codeset.eq_ignore_ascii_case(name))
}

impl TuiOptions {
    /// Defaults with the environment's colour settings and character set.
    #[must_use]
    pub fn from_env() -> Self {
        let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
        Self {
            ascii: cfg!(unix) && locale.is_some_and(|locale| !is_utf8(&locale)),
            no_color: set("NO_COLOR").is_some(),
            depth: ColorDepth::of(set("COLORTERM").as_deref(), set("TERM").as_deref()),
            ..Self::default()
        }
    }

    /// Has the caller keep a theme; returns what became of it.
    pub(crate) fn keep_theme(&self, name: &str) -> String {
        match &self.theme_keeper {
            Some(keeper) => (keeper.0)(name).unwrap_or_else(|error| error),
            None => format!("theme: {name}, until the program ends"),
        }
    }

    /// Has the caller write pictures of the screen; returns where they are, or why they could not be written.
    pub(crate) fn write_picture(&self, screen: &Buffer) -> String {
        match &self.pictures {
            Some(pictures) => (pictures.0)(screen).unwrap_or_else(|error| error),
            None => "pictures cannot be written from here".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locale_names_its_character_set() {
        for utf8 in ["C.UTF-8", "en_US.UTF-8", "de_DE.utf8", "de_DE.UTF-8@euro", "UTF-8"] {
            assert!(is_utf8(utf8), "{utf8}");
        }
        for other in
            ["C", "POSIX", "de_DE", "de_DE.ISO-8859-1", "de_DE@euro", "zh_CN.GB18030", "ru_RU.KOI8-R", "x.UTF-16"]
        {
            assert!(!is_utf8(other), "{other}");
        }
    }
}
