//! The terminal itself and the loop that joins it to a source.
//!
//! Invariant: however the loop ends (quit, an error, a panic on any thread) the terminal is put
//! back first. Consumers see every event before the session does. All pending events are taken in,
//! then one frame is drawn if anything changed, at most 60 a second; nothing wakes the loop while
//! nothing happens. What events and keys mean is elsewhere.

use std::io::{self, Stdout, stdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use crossterm::clipboard::CopyToClipboard;
use crossterm::cursor::Show;
use crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture, Event as Input, EventStream,
    KeyEventKind, MouseButton, MouseEvent, MouseEventKind,
};
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use futures::StreamExt;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::protocol::{Command, Event};
use crate::session::Timeline;
use crate::stream::{FanOut, Source};

use super::action::Action;
use super::app::{App, Ask};
use super::options::TuiOptions;
use super::{update, view};

/// Shortest time between two frames.
const FRAME: Duration = Duration::from_micros(16_667);

/// How long a source may take to end after `Shutdown`.
const FAREWELL: Duration = Duration::from_millis(1500);

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

impl Guard {
    /// Gives the terminal back, stops the process, and takes the terminal again when it goes on.
    #[cfg(unix)]
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        restore();
        signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGTSTP)?;
        take_over(self.mouse)?;
        // a new one knows nothing of the screen and draws all of it
        self.terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
        Ok(())
    }

    #[cfg(not(unix))]
    pub(super) fn suspend(&mut self) -> io::Result<()> {
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
fn take_panic() -> Option<String> {
    PANIC.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Shows a source until the user quits. Consumers see each event before the screen does and are
/// finished at the end; one that fails is dropped with a notice.
///
/// # Errors
/// When the terminal cannot be set up, drawn to or read. It is restored in every case.
pub fn run(source: Source, options: TuiOptions, consumers: FanOut) -> Result<Ended, TuiError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let mut front =
        Front { time: Timeline::new(), app: App::new(options), source, consumers, is_greeted: false, is_open: true };
    runtime.block_on(async {
        let mut guard = Guard::enter(!front.app.options.no_mouse)?;
        let shown = front.show(&mut guard).await;
        drop(guard);
        front.leave().await;
        shown
    })?;
    let failure = front.time.live().failure().map(str::to_owned).or(front.app.lost);
    Ok(failure.map_or(Ended::Quit, Ended::Failed))
}

/// Everything the loop owns.
struct Front {
    time: Timeline,
    app: App,
    source: Source,
    consumers: FanOut,
    /// Whether the source was asked for what the options say.
    is_greeted: bool,
    /// Whether more events can come.
    is_open: bool,
}

impl Front {
    async fn show(&mut self, guard: &mut Guard) -> io::Result<()> {
        let mut inputs = EventStream::new();
        let mut is_dirty = true;
        let mut next_frame = Instant::now();
        let mut ticked = Instant::now();
        while !self.app.quits() {
            if is_dirty && Instant::now() >= next_frame {
                self.draw(&mut guard.terminal)?;
                is_dirty = false;
                next_frame = Instant::now() + FRAME;
            }
            let due = update::next_tick(&self.app, &self.time).map(|gap| ticked + gap);
            tokio::select! {
                biased;
                input = inputs.next() => match input {
                    Some(input) => self.input(input?),
                    None => return Ok(()),
                },
                event = self.source.events.recv(), if self.is_open => self.take(event),
                () = sleep_until(due.unwrap_or(next_frame)), if due.is_some() => {
                    ticked = Instant::now();
                    let commands = update::tick(&mut self.app, &mut self.time);
                    self.send(commands);
                },
                () = sleep_until(next_frame), if is_dirty => continue,
            }
            self.fulfil(guard)?;
            is_dirty = true;
        }
        Ok(())
    }

    /// Does what the keys asked of the terminal and of the caller.
    fn fulfil(&mut self, guard: &mut Guard) -> io::Result<()> {
        for ask in std::mem::take(&mut self.app.asks) {
            match ask {
                Ask::Suspend => guard.suspend()?,
                Ask::Copy(text) => {
                    execute!(stdout(), CopyToClipboard::to_clipboard_from(&text))?;
                    let count = text.chars().count();
                    self.app.toast = Some(format!("{count} characters sent to the terminal's clipboard"));
                }
                Ask::Save => self.app.toast = Some(self.save()),
            }
        }
        Ok(())
    }

    fn save(&self) -> String {
        let Some(saver) = &self.app.options.save else {
            return "this session cannot be saved from here; start with --trace FILE".to_owned();
        };
        if !self.time.is_whole() {
            return "the beginning of this long run is not kept; start with --trace FILE to record all".to_owned();
        }
        (saver.0)(&mut self.time.events()).unwrap_or_else(|error| error)
    }

    fn draw(&mut self, terminal: &mut Terminal<CrosstermBackend<Stdout>>) -> io::Result<()> {
        let mut seen = None;
        let (time, app) = (&self.time, &self.app);
        terminal.draw(|frame| seen = Some(view::view(time, app, app.theme(), frame)))?;
        if let Some(seen) = seen {
            self.app.saw(seen);
        }
        Ok(())
    }

    fn input(&mut self, input: Input) {
        let commands = match input {
            Input::Key(key) if key.kind != KeyEventKind::Release => update::press(&mut self.app, &mut self.time, key),
            Input::Mouse(mouse) => self.mouse(mouse),
            Input::Paste(text) => {
                update::paste(&mut self.app, &text);
                Vec::new()
            }
            _ => Vec::new(),
        };
        self.send(commands);
    }

    fn mouse(&mut self, mouse: MouseEvent) -> Vec<Command> {
        let wheel = match mouse.kind {
            MouseEventKind::Down(MouseButton::Left) => {
                return update::click(&mut self.app, &mut self.time, mouse.column, mouse.row);
            }
            MouseEventKind::ScrollUp => Action::Up,
            MouseEventKind::ScrollDown => Action::Down,
            _ => return Vec::new(),
        };
        update::update(&mut self.app, &mut self.time, wheel)
    }

    fn send(&mut self, commands: Vec<Command>) {
        for command in commands {
            // A source that is gone says so by closing its events.
            let _ = self.source.commands.send(command);
        }
    }

    /// Takes an event and those that wait behind it, until it is time for a frame.
    fn take(&mut self, event: Option<Event>) {
        let mut next = event;
        if next.is_none() {
            self.lose();
        }
        let enough = Instant::now() + FRAME;
        while let Some(event) = next {
            self.apply(event);
            next = if Instant::now() < enough { self.source.events.try_recv().ok() } else { None };
        }
        self.app.follow(self.time.live());
        self.greet();
    }

    fn apply(&mut self, event: Event) {
        for dropped in self.consumers.event(&event) {
            self.app.toast = Some(dropped.to_string());
        }
        self.time.apply(event);
    }

    /// The source has closed its channel. A recording may end so; a live engine may not.
    fn lose(&mut self) {
        self.is_open = false;
        self.app.has_ended = true;
        let header = self.time.live().header();
        if header.is_some_and(|header| !header.capabilities.can_generate) {
            self.app.toast = Some("the recording has ended".to_owned());
            return;
        }
        let why = take_panic().map_or(String::new(), |why| format!(": {why}"));
        self.app.lost = Some(format!("The engine's thread ended without a word{why}"));
    }

    /// Once a source that takes prompts has begun: what the options asked of it.
    fn greet(&mut self) {
        let takes_prompts = self.time.live().header().is_some_and(|h| h.capabilities.can_generate);
        if !takes_prompts || std::mem::replace(&mut self.is_greeted, true) {
            return;
        }
        let commands = update::greet(&mut self.app, self.time.live());
        self.send(commands);
    }

    /// Lets the source end and the consumers have its last events.
    async fn leave(&mut self) {
        let _ = self.source.commands.send(Command::Shutdown);
        let deadline = Instant::now() + FAREWELL;
        while self.is_open {
            match timeout_at(deadline, self.source.events.recv()).await {
                Ok(Some(event)) => self.apply(event),
                Ok(None) | Err(_) => self.is_open = false,
            }
        }
        if let Some(end) = self.time.live().end().filter(|_| self.app.lost.is_none()) {
            self.apply(end);
        }
        for dropped in self.consumers.finish() {
            eprintln!("draftscope: {dropped}");
        }
        if let Some(panic) = take_panic() {
            eprintln!("draftscope: a thread {panic}");
        }
    }
}
