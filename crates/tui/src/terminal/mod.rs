//! Takes over the terminal and restores it.
//!
//! Invariant: however the front end ends (quit, an error, a panic on any thread, a signal that asks the process to
//! end), the terminal is restored first; [`fatal`] does the same for a signal that kills the process. Other files draw
//! and read keys.

pub(crate) mod background;
pub(crate) mod color_depth;
pub(crate) mod input;
pub(crate) mod modes;
pub(crate) mod plain_glyphs;

use std::io::{self, Stdout, Write, stdout};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use crossterm::clipboard::CopyToClipboard;
use crossterm::cursor::Show;
use crossterm::event::{
    DisableBracketedPaste, DisableFocusChange, DisableMouseCapture, EnableBracketedPaste, EnableFocusChange,
    EnableMouseCapture, Event,
};
use crossterm::style::Print;
use crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen, SetTitle,
    disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Frame, Terminal, TerminalOptions, Viewport};

use draftscope_host::fatal::{self, EndRequest};
use draftscope_session::text::printable;

use self::input::{is_gone, next_inputs, on_end};

/// Why the front end could not run.
#[derive(Debug, thiserror::Error)]
pub enum TuiError {
    /// The terminal could not be set up, drawn to or read.
    #[error("the terminal cannot be used: {0}")]
    Terminal(#[from] io::Error),
}

/// What is drawn on, and operations of its owner.
pub(crate) trait Stage {
    /// Where escape codes go.
    type Out: Write;

    /// Where frames are drawn; an error if it reports a size that no screen has.
    fn terminal(&mut self) -> io::Result<&mut Terminal<CrosstermBackend<Self::Out>>>;

    /// Names the terminal's window, where it has one.
    fn set_title(&mut self, title: &str) -> io::Result<()>;

    /// Sends text to the clipboard.
    fn copy(&mut self, text: &str) -> io::Result<()>;

    /// Stops the process until the shell wakes it.
    fn suspend(&mut self) -> io::Result<()>;
}

/// Most cells that are drawn, far more than any screen has: each takes some hundred bytes.
const MAX_CELLS: u32 = 1 << 20;

/// The terminal's size, unless it says that it is too large to draw on. The viewport is fixed to what was checked: ratatui
/// would ask for the size again when it draws.
fn checked_area() -> io::Result<Rect> {
    let (columns, rows) = crossterm::terminal::size()?;
    match u32::from(columns) * u32::from(rows) {
        ..=MAX_CELLS => Ok(Rect::new(0, 0, columns, rows)),
        _ => Err(io::Error::other(format!("it reports {columns} columns and {rows} rows; make it smaller"))),
    }
}

/// Whether the program has taken over the terminal.
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// The panic message of a thread other than the front end's.
static PANIC: Mutex<Option<String>> = Mutex::new(None);
static HOOK: Once = Once::new();

/// The terminal in raw mode on its alternate screen; put back when dropped.
pub(crate) struct Guard {
    /// Never dropped: ratatui would show the cursor, as [`restore`] does, and print an error to a terminal that is
    /// gone, which panics.
    pub(crate) terminal: ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>,
    wants: Wants,
}

/// What the terminal is asked to report besides keys and pastes.
#[derive(Clone, Copy)]
pub(crate) struct Wants {
    pub(crate) mouse: bool,
    /// That it got the focus, or lost it.
    pub(crate) focus: bool,
}

impl Guard {
    pub(crate) fn enter(wants: Wants) -> io::Result<Self> {
        let viewport = Viewport::Fixed(checked_area()?);
        hook_panics(thread::current().id());
        let backend = CrosstermBackend::new(stdout());
        let entered = take_over(wants).and_then(|()| Terminal::with_options(backend, TerminalOptions { viewport }));
        match entered {
            Ok(terminal) => Ok(Self { terminal: ManuallyDrop::new(terminal), wants }),
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }
}

/// Keeps the window's title and the icon's where the terminal can (XTWINOPS 22), and brings them back (23). Terminals that
/// cannot ignore both; the shell then writes its own title with its next prompt.
const KEEP_TITLE: Print<&str> = Print("\x1b[22;0t");
const RESTORE_TITLE: Print<&str> = Print("\x1b[23;0t");

/// Draws a frame that the terminal shows only when it is complete (mode 2026). Terminals without the mode ignore it and
/// show what they have.
pub(crate) fn draw_whole<W: Write>(
    terminal: &mut Terminal<CrosstermBackend<W>>,
    draw: impl FnOnce(&mut Frame<'_>),
) -> io::Result<()> {
    queue!(terminal.backend_mut(), BeginSynchronizedUpdate)?;
    let drawn = terminal.draw(draw).map(drop);
    execute!(terminal.backend_mut(), EndSynchronizedUpdate)?;
    drawn
}

/// Raw mode, the alternate screen, whole pastes and, if wanted, the mouse and the focus.
fn take_over(wants: Wants) -> io::Result<()> {
    ACTIVE.store(true, Ordering::SeqCst);
    fatal::screen_is_taken();
    enable_raw_mode()?;
    execute!(stdout(), KEEP_TITLE, EnterAlternateScreen, EnableBracketedPaste)?;
    if wants.focus {
        execute!(stdout(), EnableFocusChange)?;
    }
    if wants.mouse { execute!(stdout(), EnableMouseCapture) } else { Ok(()) }
}

impl Stage for Guard {
    type Out = Stdout;

    fn terminal(&mut self) -> io::Result<&mut Terminal<CrosstermBackend<Stdout>>> {
        let area = checked_area()?;
        if self.terminal.get_frame().area() != area {
            self.terminal.resize(area)?;
        }
        Ok(&mut self.terminal)
    }

    fn set_title(&mut self, title: &str) -> io::Result<()> {
        execute!(stdout(), SetTitle(title))
    }

    fn copy(&mut self, text: &str) -> io::Result<()> {
        execute!(stdout(), CopyToClipboard::to_clipboard_from(text))
    }

    /// Restores the terminal, suspends the process, and takes the terminal again when it is resumed.
    #[cfg(unix)]
    fn suspend(&mut self) -> io::Result<()> {
        restore();
        signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGTSTP)?;
        take_over(self.wants)?;
        // a new one knows nothing of the screen and draws all of it
        self.terminal = ManuallyDrop::new(Terminal::new(CrosstermBackend::new(stdout()))?);
        Ok(())
    }

    #[cfg(not(unix))]
    fn suspend(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        restore();
        if let Some(panic) = take_panic() {
            // the terminal may be gone
            let _ = writeln!(io::stderr(), "draftscope: a thread {}", printable(&panic));
        }
    }
}

/// Restores the terminal, once, however often it is called.
fn restore() {
    if ACTIVE.swap(false, Ordering::SeqCst) {
        // Nothing can be done about a terminal that is gone.
        let _ = execute!(
            stdout(),
            EndSynchronizedUpdate,
            DisableMouseCapture,
            DisableFocusChange,
            DisableBracketedPaste,
            LeaveAlternateScreen,
            RESTORE_TITLE,
            Show
        );
        let _ = disable_raw_mode();
        fatal::screen_is_free();
    }
}

/// A panic on the front end's thread restores the terminal and is reported as usual; a panic on another thread must not
/// write over the screen, so its message is kept until the source has ended.
fn hook_panics(own: ThreadId) {
    HOOK.call_once(move || {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let foreign = thread::current().id() != own;
            if foreign && ACTIVE.load(Ordering::SeqCst) {
                *PANIC.lock().unwrap_or_else(PoisonError::into_inner) = Some(info.to_string());
            } else {
                restore();
                previous(info);
            }
        }));
    });
}

/// The panic message of another thread, once.
pub(crate) fn take_panic() -> Option<String> {
    PANIC.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// The signal for a terminal that is gone.
#[cfg(unix)]
pub(crate) const HANGUP: i32 = signal_hook::consts::SIGHUP;

#[cfg(not(unix))]
pub(crate) const HANGUP: i32 = 1;

/// Listens for signals, and waits until one asks the process to end or the terminal is gone.
#[cfg(unix)]
pub(crate) fn asked_to_end() -> io::Result<(EndRequest, impl Future<Output = ()>)> {
    let request = EndRequest::listen()?;
    let (sender, ended) = tokio::sync::oneshot::channel();
    on_end(|| {
        let _ = sender.send(()); // fails if the front end has ended
    })?;
    Ok((request, async move {
        if ended.await.is_err() {
            std::future::pending::<()>().await; // there is nothing to wait for
        }
    }))
}

#[cfg(not(unix))]
pub(crate) fn asked_to_end() -> io::Result<(EndRequest, impl Future<Output = ()>)> {
    Ok((EndRequest::listen()?, std::future::pending()))
}

/// Ends the process as the signal would have, so that its sender sees the effect.
pub(crate) fn die_of(signal: i32) {
    #[cfg(unix)]
    fatal::die_of(signal);
    #[cfg(not(unix))]
    let _ = signal;
}

/// For a screen without a loop of its own: ends once the terminal is gone. Signals end it by themselves.
pub(crate) fn end_on_hangup() -> io::Result<()> {
    on_end(hang_up)
}

fn hang_up() {
    restore();
    die_of(HANGUP);
}

/// The next inputs for a screen without a loop of its own.
pub(crate) fn inputs_within(wait: Duration) -> io::Result<Vec<Event>> {
    // reading may fail before the hang-up is reported
    next_inputs(wait).inspect_err(|_| {
        if is_gone() {
            hang_up();
        }
    })
}
