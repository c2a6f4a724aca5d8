//! The terminal itself: taken over, given back.
//!
//! Invariant: however the front end ends (quit, an error, a panic on any thread) the terminal is put
//! back first. What is drawn and what keys mean is elsewhere.

use std::io::{self, Stdout, Write, stdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::thread::{self, ThreadId};

use crossterm::clipboard::CopyToClipboard;
use crossterm::cursor::Show;
use crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture, EventStream,
};
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

use crate::stream::{FanOut, Source};

use super::front::{Front, Stage};
use super::options::TuiOptions;

/// How a run of the front end ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The user quit.
    Quit,
    /// The engine failed or vanished; the user has seen why.
    Failed(String),
}

/// Why the front end could not run.
#[derive(Debug, thiserror::Error)]
pub enum TuiError {
    /// The terminal could not be set up, drawn to or read.
    #[error("the terminal cannot be used: {0}")]
    Terminal(#[from] io::Error),
}

/// Whether the terminal is ours now.
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// What a thread other than the front end's panicked with.
static PANIC: Mutex<Option<String>> = Mutex::new(None);
static HOOK: Once = Once::new();

/// The terminal in raw mode on its alternate screen; put back when dropped.
pub(super) struct Guard {
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
    mouse: bool,
}

impl Guard {
    pub(super) fn enter(mouse: bool) -> io::Result<Self> {
        hook_panics(thread::current().id());
        let entered = take_over(mouse).and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        match entered {
            Ok(terminal) => Ok(Self { terminal, mouse }),
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
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, EnableBracketedPaste)?;
    if mouse { execute!(stdout(), EnableMouseCapture) } else { Ok(()) }
}

impl Stage for Guard {
    type Out = Stdout;

    fn terminal(&mut self) -> &mut Terminal<CrosstermBackend<Stdout>> {
        &mut self.terminal
    }

    fn copy(&mut self, text: &str) -> io::Result<()> {
        execute!(stdout(), CopyToClipboard::to_clipboard_from(text))
    }

    /// Asks where the cursor is (DSR): the reply wakes the reader of keys, and nobody waits for it.
    fn nudge(&mut self) -> io::Result<()> {
        let mut out = stdout();
        out.write_all(b"\x1b[6n")?;
        out.flush()
    }

    /// Gives the terminal back, stops the process, and takes the terminal again when it goes on.
    #[cfg(unix)]
    fn suspend(&mut self) -> io::Result<()> {
        restore();
        signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGTSTP)?;
        take_over(self.mouse)?;
        // a new one knows nothing of the screen and draws all of it
        self.terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
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

/// Puts the terminal back; once, however often it is called.
fn restore() {
    if ACTIVE.swap(false, Ordering::SeqCst) {
        // Nothing can be done about a terminal that is gone.
        let _ = execute!(stdout(), DisableMouseCapture, DisableBracketedPaste, LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// A panic on the front end's thread restores the terminal and is reported as ever; one on another
/// thread must not write over the screen, so it is kept until the source's end shows.
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

/// What another thread panicked with, once.
pub(super) fn take_panic() -> Option<String> {
    PANIC.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Shows a source until the user quits. Consumers see each event before the screen does and are
/// finished at the end; one that fails is dropped with a notice.
///
/// # Errors
/// When the terminal cannot be set up, drawn to or read. It is restored in every case.
pub fn run(source: Source, options: TuiOptions, consumers: FanOut) -> Result<Ended, TuiError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let mut front = Front::new(source, options, consumers);
    runtime.block_on(async {
        let mut guard = Guard::enter(front.wants_mouse())?;
        let shown = front.show(&mut guard, EventStream::new(), |_| false).await;
        drop(guard);
        front.leave().await;
        shown
    })?;
    Ok(front.ended())
}
