//! The front end without a terminal, to measure what drawing costs: the same loop with an invisible screen.
//!
//! Invariant: everything happens as on a terminal of the given size (folding, layout, the difference to the frame
//! before, escape codes), except that the codes are discarded and no key comes.

use std::io::{self, Sink};

use futures::stream;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use tokio::runtime::Runtime;

use draftscope_protocol::stream::{FanOut, Source};
use draftscope_session::Session;

use crate::app::options::TuiOptions;
use crate::loops::event_loop::EventLoop;
use crate::terminal::{Stage, TuiError};

/// A screen that discards what is drawn.
struct Blind(Terminal<CrosstermBackend<Sink>>);

impl Stage for Blind {
    type Out = Sink;

    fn terminal(&mut self) -> io::Result<&mut Terminal<CrosstermBackend<Sink>>> {
        Ok(&mut self.0)
    }

    fn set_title(&mut self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn copy(&mut self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn suspend(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A running front end without a terminal.
pub struct Offscreen {
    event_loop: EventLoop,
    stage: Blind,
    runtime: Runtime,
}

impl Offscreen {
    /// Shows a source on a screen of so many columns and rows.
    ///
    /// # Errors
    /// When the system gives no timer.
    pub fn new(
        source: Source,
        options: TuiOptions,
        consumers: FanOut,
        (columns, rows): (u16, u16),
    ) -> Result<Self, TuiError> {
        let viewport = Viewport::Fixed(Rect::new(0, 0, columns, rows));
        let terminal = Terminal::with_options(CrosstermBackend::new(io::sink()), TerminalOptions { viewport })?;
        Ok(Self {
            event_loop: EventLoop::new(source, options, consumers),
            stage: Blind(terminal),
            runtime: tokio::runtime::Builder::new_current_thread().enable_time().build()?,
        })
    }

    /// Waits for the source to begin.
    ///
    /// # Errors
    /// When a frame cannot be drawn.
    pub fn begin(&mut self) -> Result<(), TuiError> {
        self.show(|event_loop| has_begun(event_loop.own().live()))
    }

    /// Types a prompt and shows its answer to the end.
    ///
    /// # Errors
    /// When a frame cannot be drawn.
    pub fn answer(&mut self, prompt: &str) -> Result<(), TuiError> {
        let turns = self.session().turns().len();
        self.event_loop.prompt(prompt);
        self.show(|event_loop| {
            let session = event_loop.own().live();
            session.failure().is_some() || (session.turns().len() > turns && !session.is_generating())
        })
    }

    /// Answers a prompt on the same source without showing it; returns what happened.
    pub fn answer_unseen(&mut self, prompt: &str) -> Session {
        self.event_loop.answer_unseen(prompt)
    }

    fn show(&mut self, is_done: impl Fn(&EventLoop) -> bool) -> Result<(), TuiError> {
        Ok(self.runtime.block_on(self.event_loop.show(&mut self.stage, stream::pending(), is_done))?)
    }

    /// The session so far.
    #[must_use]
    pub fn session(&self) -> &Session {
        self.event_loop.own().live()
    }

    /// Frames drawn so far.
    #[must_use]
    pub fn draws(&self) -> u64 {
        self.event_loop.draws()
    }

    /// Ends the source.
    pub fn end(mut self) {
        self.runtime.block_on(self.event_loop.leave());
    }
}

fn has_begun(session: &Session) -> bool {
    session.header().is_some() || session.failure().is_some()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;
    use draftscope_protocol::{Command, EventKind, Lane, StopReason};
    use draftscope_session::fixture::Script;

    /// A source that answers with an event every half millisecond for a while, and with 30 rounds at least.
    fn busy(lasting: Duration) -> Source {
        let (commands, asked) = channel();
        let (tell, events) = tokio::sync::mpsc::unbounded_channel();
        thread::spawn(move || {
            let mut script = Script::started();
            let _ = tell.send(script.events[0].clone());
            while !matches!(asked.recv(), Ok(Command::Generate { .. }) | Err(_)) {}
            let began = Instant::now();
            script.prompt("go on", "It");
            let (mut sent, mut rounds) = (1, 0);
            while began.elapsed() < lasting || rounds < 30 {
                rounds += 1;
                script.round(&[(" a", 0.5), (" b", 0.4)], &[(" a", 0.6), (" c", 0.5), (" d", 0.9)]);
                for event in &script.events[sent..] {
                    let _ = tell.send(event.clone());
                    thread::sleep(Duration::from_micros(500));
                }
                sent = script.events.len();
            }
            for lane in [Lane::Speculative, Lane::Plain] {
                script.push(lane, EventKind::Finished { reason: StopReason::Eos });
            }
            script.events[sent..].iter().for_each(|event| drop(tell.send(event.clone())));
            while asked.recv().is_ok_and(|command| command != Command::Shutdown) {}
        });
        Source { commands, events: events.into() }
    }

    #[test]
    fn at_most_sixty_frames_a_second_and_none_while_nothing_happens() {
        let source = busy(Duration::from_millis(1500));
        let mut stage = Offscreen::new(source, TuiOptions::default(), FanOut::default(), (120, 40)).unwrap();
        stage.begin().unwrap();
        let (began, before) = (Instant::now(), stage.draws());
        stage.answer("go on").unwrap();
        let most = began.elapsed().as_secs_f64() * 60.0 + 2.0;
        let drawn = stage.draws() - before;
        assert!(stage.session().turns()[0].answer(Lane::Speculative).rounds.len() > 20, "there was much to draw");
        assert!(drawn > 3 && drawn as f64 <= most, "{drawn} frames, at most {most:.0}");

        let idle = |stage: &mut Offscreen| {
            let Offscreen { event_loop, stage, runtime } = stage;
            let shown = event_loop.show(stage, stream::pending(), |_| false);
            let _ = runtime.block_on(async { tokio::time::timeout(Duration::from_millis(400), shown).await });
        };
        idle(&mut stage); // what was left to draw
        let before = stage.draws();
        idle(&mut stage);
        assert!(stage.draws() - before <= 1, "entering draws once; then nothing happened");
        stage.end();
    }

    #[test]
    fn an_answer_out_of_sight_is_the_same_answer() {
        let source = busy(Duration::from_millis(100));
        let mut stage = Offscreen::new(source, TuiOptions::default(), FanOut::default(), (80, 24)).unwrap();
        stage.begin().unwrap();
        let before = stage.draws();
        let session = stage.answer_unseen("go on");
        assert!(session.turn().unwrap().answer(Lane::Speculative).finished.is_some());
        assert_eq!(stage.draws(), before);
        stage.end();
    }
}
