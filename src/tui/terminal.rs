//! Takes over the terminal and restores it.
//!
//! Invariant: however the front end ends (quit, an error, a panic on any thread, a signal that asks the process to
//! end), the terminal is restored first; [`fatal`] does the same for a signal that kills the process. Other files draw
//! and read keys.

use std::io::{self, Stdout, Write, stdout};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::thread::{self, ThreadId};

use crossterm::clipboard::CopyToClipboard;
use crossterm::cursor::Show;
use crossterm::event::{DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture};
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};

use crate::fatal;

#[cfg(unix)]
use super::terminal_input::on_hangup;

/// Why the front end could not run.
#[derive(Debug, thiserror::Error)]
pub enum TuiError {
    /// The terminal could not be set up, drawn to or read.
    #[error("the terminal cannot be used: {0}")]
    Terminal(#[from] io::Error),
}

/// What is drawn on, and operations of its owner.
pub(super) trait Stage {
    /// Where escape codes go.
    type Out: Write;

    /// Where frames are drawn; an error if it reports a size that no screen has.
    fn terminal(&mut self) -> io::Result<&mut Terminal<CrosstermBackend<Self::Out>>>;

    /// Sends text to the clipboard.
    fn copy(&mut self, text: &str) -> io::Result<()>;

    /// Makes the terminal send a reply, so that keys typed before are read too.
    fn nudge(&mut self) -> io::Result<()>;

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
pub(super) struct Guard {
    /// Never dropped: ratatui would show the cursor, as [`restore`] does, and print an error to a terminal that is
    /// gone, which panics.
    pub(super) terminal: ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>,
    mouse: bool,
}

impl Guard {
    pub(super) fn enter(mouse: bool) -> io::Result<Self> {
        let viewport = Viewport::Fixed(checked_area()?);
        hook_panics(thread::current().id());
        let backend = CrosstermBackend::new(stdout());
        let entered = take_over(mouse).and_then(|()| Terminal::with_options(backend, TerminalOptions { viewport }));
        match entered {
            Ok(terminal) => Ok(Self { terminal: ManuallyDrop::new(terminal), mouse }),
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }
}

/// Raw mode, the alternate screen, whole pastes and, if wanted, the mouse.
fn take_over(mouse: bool) -> io::Result<()> {
    ACTIVE.store(true, Ordering::SeqCst);
    fatal::screen_is_taken();
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, EnableBracketedPaste)?;
    if mouse { execute!(stdout(), EnableMouseCapture) } else { Ok(()) }
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

    fn copy(&mut self, text: &str) -> io::Result<()> {
        execute!(stdout(), CopyToClipboard::to_clipboard_from(text))
    }

    /// Asks for the cursor position (DSR): the reply wakes the reader of keys; nobody waits for it.
    fn nudge(&mut self) -> io::Result<()> {
        let mut out = stdout();
        out.write_all(b"\x1b[6n")?;
        out.flush()
    }

    /// Restores the terminal, suspends the process, and takes the terminal again when it is resumed.
    #[cfg(unix)]
    fn suspend(&mut self) -> io::Result<()> {
        restore();
        signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGTSTP)?;
        take_over(self.mouse)?;
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
    }
}

/// Restores the terminal, once, however often it is called.
fn restore() {
    if ACTIVE.swap(false, Ordering::SeqCst) {
        // Nothing can be done about a terminal that is gone.
        let _ = execute!(stdout(), DisableMouseCapture, DisableBracketedPaste, LeaveAlternateScreen, Show);
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
pub(super) fn take_panic() -> Option<String> {
    PANIC.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Signals that end a process.
#[cfg(unix)]
const ENDING: [i32; 3] = [signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP, signal_hook::consts::SIGINT];

/// The signal for a terminal that is gone.
#[cfg(unix)]
pub(super) const HANGUP: i32 = signal_hook::consts::SIGHUP;

#[cfg(not(unix))]
pub(super) const HANGUP: i32 = 1;

/// The first signal that asks the process to end; a terminal that is gone counts as [`HANGUP`].
#[cfg(unix)]
pub(super) fn asked_to_end() -> io::Result<impl Future<Output = i32>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut signals = Vec::new();
    for number in ENDING {
        signals.push((number, signal(SignalKind::from_raw(number))?));
    }
    let (sender, gone) = tokio::sync::oneshot::channel();
    on_hangup(|| {
        let _ = sender.send(()); // fails if the front end has ended
    })?;
    let signal = std::future::poll_fn(move |context| {
        let mut each = signals.iter_mut();
        let come = each.find_map(|(number, signal)| signal.poll_recv(context).is_ready().then_some(*number));
        come.map_or(std::task::Poll::Pending, std::task::Poll::Ready)
    });
    Ok(async move {
        tokio::select! {
            number = signal => number,
            Ok(()) = gone => HANGUP,
        }
    })
}

#[cfg(not(unix))]
pub(super) fn asked_to_end() -> io::Result<impl Future<Output = i32>> {
    Ok(std::future::pending())
}

/// From here on a signal ends the process as if there were no handler.
#[cfg(unix)]
pub(super) fn end_at_once() -> io::Result<()> {
    let always = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    ENDING.iter().try_for_each(|signal| {
        signal_hook::flag::register_conditional_default(*signal, std::sync::Arc::clone(&always)).map(drop)
    })
}

#[cfg(not(unix))]
pub(super) fn end_at_once() -> io::Result<()> {
    Ok(())
}

/// Ends the process as the signal would have, so that its sender sees the effect.
#[cfg(unix)]
pub(super) fn die_of(signal: i32) -> io::Result<()> {
    signal_hook::low_level::emulate_default_handler(signal)
}

#[cfg(not(unix))]
pub(super) fn die_of(_: i32) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn restore_and_die(signal: i32) {
    restore();
    // an error could be reported to nobody
    let _ = die_of(signal);
}

/// For a screen without a loop of its own: restores the terminal and exits on a signal.
#[cfg(unix)]
pub(super) fn end_on_signals() -> io::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new(ENDING)?;
    thread::spawn(move || signals.forever().next().map(restore_and_die));
    on_hangup(|| restore_and_die(HANGUP))
}

#[cfg(not(unix))]
pub(super) fn end_on_signals() -> io::Result<()> {
    Ok(())
}
