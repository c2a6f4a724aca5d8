//! The loop that connects a source, keys and a screen.
//!
//! Invariant: consumers see every event of the user's run before the session does; turns of lessons are in no recording. The loop reads all pending events, then draws one
//! frame if anything changed, at most 60 a second and for no more than a share of the time, so that drawing leaves the
//! engine its processors and does not hold up keys. Events between two frames wait for the next one: waking for each would
//! cost the engine more than drawing. Nothing wakes the loop while nothing happens. Other files say what events and keys
//! mean.

mod requests;
mod surroundings;
mod typing;
mod waiting;

use std::collections::VecDeque;
use std::io::{self, Write};
use std::time::Duration;

use crossterm::event::{Event as Input, KeyEventKind, MouseButton, MouseEvent, MouseEventKind};
use futures::Stream;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use tokio::sync::watch::{self, Receiver};
use tokio::time::{Instant, sleep_until, timeout_at};

use draftscope_protocol::stream::{Dropped, FanOut, Source};
use draftscope_protocol::{Command, Event};
use draftscope_session::text::printable;
use draftscope_session::{Session, Timeline};

use crate::app::App;
use crate::app::options::{TuiOptions, UserLook};
use crate::app::talk::conversation;
use crate::input::action::Action;
use crate::terminal::input::{inputs, is_gone};
use crate::terminal::{Guard, HANGUP, Stage, TuiError, Wants, asked_to_end, die_of, draw_whole, take_panic};
use crate::update;
use crate::view::View;
use waiting::{changed, next_input};

/// Shortest time between two frames.
const FRAME: Duration = Duration::from_micros(16_667);

/// A slow frame is followed by so many times its duration without a frame.
const REST: u32 = 40;

/// The same for a frame that shows the reply to a key, however slow.
const REST_OF_KEYS: u32 = 2;

/// Longest delay of the screen, unless its frames are slower.
const LAG: Duration = Duration::from_millis(200);

/// How long a source may take to end after `Shutdown`.
const FAREWELL: Duration = Duration::from_millis(1500);

/// How a run of the front end ended.
#[derive(Debug)]
pub enum Ended {
    /// The user quit.
    Quit,
    /// The engine failed or vanished; the user has seen the reason.
    Failed(String),
    /// The user quit, and a consumer had failed before: its output is incomplete.
    Incomplete(Dropped),
}

/// All state of the loop.
pub(crate) struct EventLoop {
    time: Timeline,
    app: App,
    view: View,
    source: Source,
    consumers: FanOut,
    /// Whether the source was sent what the options ask for.
    is_greeted: bool,
    /// Whether more events can come.
    is_open: bool,
    /// Whether events cannot wait for the next frame.
    is_behind: bool,
    /// Text typed into the prompt since the last frame: one insertion costs as much as one of a single character.
    typing: String,
    /// Frames drawn.
    draws: u64,
    /// Consumers that failed: their output is incomplete.
    dropped: Vec<Dropped>,
    /// What the user's files say, when they change.
    look: Option<Receiver<UserLook>>,
    /// The theme that fits the terminal's background, each time it reports that.
    fitting: Option<Receiver<Option<&'static str>>>,
    /// The title of the window; empty before a model is known.
    title: String,
    /// Printed after the terminal is restored: where the session was saved.
    farewell: Option<String>,
}

impl EventLoop {
    pub(crate) fn new(source: Source, options: TuiOptions, consumers: FanOut) -> Self {
        let look = options.look.clone();
        let mut app = App::new(options);
        update::begin_lesson(&mut app);
        Self {
            time: Timeline::new(),
            app,
            view: View::default(),
            source,
            consumers,
            is_greeted: false,
            is_open: true,
            is_behind: false,
            typing: String::new(),
            draws: 0,
            dropped: Vec::new(),
            look,
            fitting: None,
            title: String::new(),
            farewell: None,
        }
    }

    fn wants(&self) -> Wants {
        Wants { mouse: !self.app.options.no_mouse, focus: self.app.options.fitting_theme.is_some() }
    }

    /// Where the theme that fits the terminal's background is sent; none where it is not to be followed.
    fn follow_background(&mut self) -> Option<watch::Sender<Option<&'static str>>> {
        let (sender, fitting) = watch::channel(None);
        self.fitting = self.wants().focus.then_some(fitting);
        self.fitting.is_some().then_some(sender)
    }

    /// The source's own run, also while a recording or a lesson's run is shown.
    pub(crate) fn own(&self) -> &Timeline {
        self.app.learning.aside.as_ref().unwrap_or(&self.time)
    }

    /// Frames drawn so far.
    pub(crate) fn draws(&self) -> u64 {
        self.draws
    }

    /// How the run ended.
    pub(crate) fn ended(self) -> Ended {
        let live = self.own().live();
        let failure = live.failure().map(str::to_owned).or_else(|| self.app.requests.lost.clone());
        let failure = failure.map(|why| match self.app.without_engine(live) {
            Some(other) => format!("{why}; {other}"),
            None => why,
        });
        let incomplete = || self.dropped.into_iter().next().map_or(Ended::Quit, Ended::Incomplete);
        failure.map_or_else(incomplete, Ended::Failed)
    }

    /// Runs until the user quits, the keys end, or `is_done` returns true.
    pub(crate) async fn show<S: Stage>(
        &mut self,
        stage: &mut S,
        mut inputs: impl Stream<Item = io::Result<Input>> + Unpin,
        is_done: impl Fn(&Self) -> bool,
    ) -> io::Result<()> {
        let mut is_dirty = true;
        let (mut next_frame, mut rested) = (Instant::now(), Instant::now());
        let mut ticked = Instant::now();
        let mut waiting = VecDeque::new();
        while !self.app.quits() && !is_done(self) {
            if is_dirty && Instant::now() >= next_frame + if waiting.is_empty() { Duration::ZERO } else { LAG } {
                let began = Instant::now();
                self.type_text();
                self.draw(stage.terminal()?)?;
                is_dirty = false;
                let (now, took) = (Instant::now(), began.elapsed());
                rested = now + took * REST_OF_KEYS;
                next_frame = rested.max(now + (took * REST).clamp(FRAME, LAG));
            }
            // an event that cannot be shown yet stays in the channel, unless there are too many
            let awaits = self.is_open && (!is_dirty || self.is_behind || Instant::now() >= next_frame);
            let due = update::next_tick(&self.app, &self.time).map(|gap| ticked + gap);
            tokio::select! {
                biased;
                input = next_input(&mut waiting, &mut inputs) => match input {
                    Some(input) => {
                        let input = input?;
                        match self.typed(&input, &mut waiting) {
                            Some(text) => self.typing.push_str(&text),
                            None => {
                                self.type_text();
                                self.input(input);
                            }
                        }
                        // the reply to a key is shown at once
                        next_frame = next_frame.min(rested.max(Instant::now() + FRAME));
                    }
                    None => return Ok(()),
                },
                event = self.source.events.recv(), if awaits => {
                    self.type_text();
                    self.take(event);
                }
                () = sleep_until(due.unwrap_or(next_frame)), if due.is_some() => {
                    ticked = Instant::now();
                    let commands = update::tick(&mut self.app, &mut self.time);
                    self.send(commands);
                    self.follow_up();
                },
                look = changed(&mut self.look) => self.app.reload(look),
                fitting = changed(&mut self.fitting) => fitting.into_iter().for_each(|name| self.app.fit_background(name)),
                () = sleep_until(next_frame), if is_dirty => continue,
            }
            update::veil(&self.app, &mut self.time);
            self.name_window(stage)?;
            self.fulfil(stage).await?;
            is_dirty = true;
        }
        Ok(())
    }

    fn draw<W: Write>(&mut self, terminal: &mut Terminal<CrosstermBackend<W>>) -> io::Result<()> {
        let mut hit_map = None;
        let (time, app, view) = (&self.time, &self.app, &self.view);
        draw_whole(terminal, |frame| hit_map = Some(view.draw(time, app, app.theme(), frame)))?;
        if let Some(hit_map) = hit_map {
            self.app.set_hit_map(hit_map);
        }
        if self.app.talk.editor.settle() {
            let (time, app, view) = (&self.time, &self.app, &self.view);
            draw_whole(terminal, |frame| drop(view.draw(time, app, app.theme(), frame)))?;
        }
        self.draws += 1;
        Ok(())
    }

    fn input(&mut self, input: Input) {
        let commands = match input {
            Input::Key(key) if key.kind != KeyEventKind::Release => update::press(&mut self.app, &mut self.time, key),
            Input::Mouse(mouse) => self.mouse(mouse),
            Input::Paste(text) => {
                update::paste(&mut self.app, &mut self.time, &text);
                Vec::new()
            }
            _ => Vec::new(),
        };
        self.send(commands);
        self.follow_up();
    }

    /// Asks for what follows from what has happened: the second turn of a lesson, and the end of plain decoding where both
    /// answers are on show.
    fn follow_up(&mut self) {
        let mut commands = update::go_on_with_lesson(&mut self.app, &mut self.time);
        commands.extend(update::finish_plain(&mut self.app, &self.time));
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

    /// Sends a prompt as if it had been typed, in a conversation of its own.
    pub(crate) fn prompt(&mut self, text: &str) {
        self.app.talk.conversations.push(self.time.live().turns().len());
        let commands = update::ask(&mut self.app, &self.time, text.to_owned());
        self.send(commands);
    }

    /// Answers the same prompt without showing anything.
    pub(crate) fn answer_unseen(&mut self, text: &str) -> Session {
        self.app.talk.conversations.push(self.time.live().turns().len());
        let prompt = conversation::prompt(&self.app, self.time.live(), text.to_owned());
        let mut session = Session::new();
        self.send(vec![Command::Generate { prompt }]);
        while let Some(event) = self.source.events.blocking_recv() {
            self.consumers.event(&event);
            session.apply(&event);
            if session.failure().is_some() || (session.turn().is_some() && !session.is_generating()) {
                break;
            }
        }
        session
    }

    fn send(&mut self, commands: Vec<Command>) {
        for command in commands {
            // requests about a recording are not for the source
            if !self.app.learning.shows_recording() || command == Command::Shutdown {
                self.send_one(command);
            }
        }
    }

    fn send_one(&mut self, command: Command) {
        self.app.requests.pending.note(&command);
        // A source that is gone closes its events.
        let _ = self.source.commands.send(command);
    }

    /// Reads an event and those waiting after it, until it is time for a frame.
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
        self.is_behind = self.source.events.is_pressing();
        self.app.follow(self.time.live());
        self.greet();
        self.follow_up();
    }

    fn apply(&mut self, event: Event) {
        if !self.app.learning.is_of_lesson(&event) {
            for dropped in self.consumers.event(&event) {
                self.app.toast = Some(dropped.to_string());
                self.dropped.push(dropped);
            }
        }
        self.app.deliver(&mut self.time, event);
    }

    /// The source has closed its channel: normal for a recording, a failure for a live engine.
    fn lose(&mut self) {
        self.is_open = false;
        self.app.requests.has_ended = true;
        let header = self.own().live().header();
        if header.is_some_and(|header| !header.capabilities.can_generate) {
            self.app.toast = Some("the recording has ended".to_owned());
            return;
        }
        let why = take_panic().map_or(String::new(), |why| format!(": {why}"));
        self.app.requests.lost = Some(format!("The engine's thread ended without a word{why}"));
    }

    /// After a source that takes prompts has begun: sends what the options ask for.
    fn greet(&mut self) {
        let takes_prompts = self.own().live().header().is_some_and(|h| h.capabilities.can_generate);
        if !takes_prompts || std::mem::replace(&mut self.is_greeted, true) {
            return;
        }
        let commands = update::greet(&mut self.app, &mut self.time);
        self.send(commands);
    }

    /// Shuts the source down and delivers the last events to the consumers.
    pub(crate) async fn leave(&mut self) {
        let _ = self.source.commands.send(Command::Shutdown);
        let deadline = Instant::now() + FAREWELL;
        while self.is_open {
            match timeout_at(deadline, self.source.events.recv()).await {
                Ok(Some(event)) => self.apply(event),
                Ok(None) | Err(_) => self.is_open = false,
            }
        }
        if let Some(end) = self.own().live().end().filter(|_| self.app.requests.lost.is_none()) {
            self.apply(end);
        }
        self.dropped.extend(self.consumers.finish());
        if let Some(line) = &self.farewell {
            // the terminal may be gone
            let _ = writeln!(io::stderr(), "draftscope: {}", printable(line));
        }
    }
}

/// Shows a source until the user quits. Consumers see each event before the screen does and are finished at the end;
/// one that fails is dropped with a notice.
///
/// # Errors
/// When the terminal cannot be set up, drawn to or read. It is restored in every case.
pub fn run(source: Source, options: TuiOptions, consumers: FanOut) -> Result<Ended, TuiError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().enable_io().build()?;
    let mut event_loop = EventLoop::new(source, options, consumers);
    let signal = runtime.block_on(async {
        let (listening, end) = asked_to_end()?;
        let mut guard = Guard::enter(event_loop.wants())?;
        let fitting = event_loop.follow_background();
        let shown = tokio::select! {
            shown = event_loop.show(&mut guard, inputs(fitting)?, |_| false) => shown.map(|()| None),
            () = end => Ok(Some(Some(listening.signal()).filter(|signal| *signal != 0).unwrap_or(HANGUP))),
        };
        // drawing may fail before the hang-up is reported
        let shown = if shown.is_err() && is_gone() { Ok(Some(HANGUP)) } else { shown };
        drop(guard);
        drop(listening); // a consumer may wait for a disk or a reader for ever: from here on a signal ends the process
        event_loop.leave().await;
        shown
    })?;
    if let Some(signal) = signal {
        die_of(signal);
    }
    Ok(event_loop.ended())
}
