//! Runs a source without a screen: sends a prompt, hands events on until every lane has finished.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::fold::Session;
use draftscope_protocol::stream::{Consumer, Dropped, FanOut, Source};
use draftscope_protocol::{Baseline, Command, EventKind, Lane, Prompt, Settings, StopReason};

/// Longest time until a request to stop is noticed.
const TICK: Duration = Duration::from_millis(100);

/// How long a source may take to stop an answer before its events are no longer waited for.
const LONGEST_STOP: Duration = Duration::from_secs(5);

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All lanes finished.
    Answered,
    /// Somebody asked to stop before that, or nobody takes events any longer; what came until then was handed on.
    Stopped,
    /// The source refused the prompt or failed: one sentence.
    Failed(String),
}

/// A source, its consumers, and what happened so far.
pub struct Driver {
    source: Source,
    consumers: FanOut,
    session: Session,
    dropped: Vec<Dropped>,
    stop: Arc<AtomicBool>,
}

impl Driver {
    /// Drives this source.
    #[must_use]
    pub fn new(source: Source) -> Self {
        Self {
            source,
            consumers: FanOut::default(),
            session: Session::new(),
            dropped: Vec::new(),
            stop: Arc::default(),
        }
    }

    /// Adds a consumer.
    pub fn add(&mut self, consumer: Box<dyn Consumer>) {
        self.consumers.add(consumer);
    }

    /// What happened so far.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Drops all answers but the newest, so that a run of many prompts takes no more memory than one of few.
    pub fn drop_old_answers(&mut self) {
        self.session.drop_old_turns();
    }

    /// Asks something of the source that is no prompt.
    pub fn send(&self, command: Command) {
        // a source that is gone says why in its last event
        let _ = self.source.commands.send(command);
    }

    /// Once this is set, by a signal say, the answer under way is stopped and no other is begun.
    pub fn stop_on(&mut self, flag: Arc<AtomicBool>) {
        self.stop = flag;
    }

    fn is_to_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.is_unheard()
    }

    /// Whether to stop while the model loads: nothing has begun that needs an end.
    fn is_to_stop_loading(&self) -> bool {
        self.session.header().is_none() && self.is_to_stop()
    }

    /// Whether those who took events are gone, the last one because its reader has enough.
    fn is_unheard(&self) -> bool {
        self.consumers.is_empty() && self.dropped.iter().any(|dropped| dropped.error.kind() == ErrorKind::BrokenPipe)
    }

    /// Sends a prompt and waits until its answer is complete, or stopped.
    pub fn answer(&mut self, prompt: Prompt) -> Outcome {
        if self.is_to_stop() {
            return Outcome::Stopped;
        }
        // a source that is gone says why in its last event
        let _ = self.source.commands.send(Command::Generate { prompt });
        let mut open = vec![Lane::Speculative];
        let (mut has_begun, mut reported) = (false, None::<Instant>);
        while !open.is_empty() {
            // before the answer has begun it would take the prompt back, and nothing would say that it ended
            if has_begun && reported.is_none() && self.is_to_stop() {
                reported = Some(Instant::now());
                self.send(Command::Stop);
            }
            let is_deaf = || reported.is_some_and(|reported| reported.elapsed() > LONGEST_STOP);
            let event = match self.source.events.recv_within(TICK) {
                Poll::Ready(Some(event)) => event,
                Poll::Ready(None) => {
                    return Outcome::Failed("the engine ended without a word; please report this".into());
                }
                Poll::Pending if self.is_to_stop_loading() || is_deaf() => return Outcome::Stopped,
                Poll::Pending => continue,
            };
            self.dropped.extend(self.consumers.event(&event));
            self.session.apply(&event);
            if self.is_to_stop_loading() {
                return Outcome::Stopped;
            }
            has_begun |= matches!(event.kind, EventKind::Prompted { .. });
            match event.kind {
                EventKind::Failed { message } => return Outcome::Failed(message),
                EventKind::Finished { reason: StopReason::Refused | StopReason::BrokenOff } => {
                    let notice = self.session.notices().next_back();
                    return Outcome::Failed(notice.unwrap_or("the prompt was refused").to_owned());
                }
                EventKind::Finished { .. } => open.retain(|lane| *lane != event.lane),
                EventKind::Prefilled(_) if event.lane == Lane::Speculative => {
                    open.extend(beside(self.session.settings()));
                }
                _ => {}
            }
        }
        if self.is_to_stop() { Outcome::Stopped } else { Outcome::Answered }
    }

    /// Ends the run: consumers are finished, and those that failed on the way are returned.
    pub fn finish(mut self) -> Vec<Dropped> {
        let _ = self.source.commands.send(Command::Shutdown);
        if let Some(end) = self.session.end() {
            self.dropped.extend(self.consumers.event(&end));
        }
        self.dropped.extend(self.consumers.finish());
        self.dropped
    }
}

/// The lanes that run beside.
fn beside(settings: &Settings) -> impl Iterator<Item = Lane> {
    let plain = (settings.baseline != Baseline::Off).then_some(Lane::Plain);
    plain.into_iter().chain(settings.rival.map(|_| Lane::Rival))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread::JoinHandle;

    use super::*;
    use crate::fixture::header;
    use draftscope_protocol::Event;

    /// A driver, and a source that is asked to stop its answer; `begun` is called before the answer begins.
    fn stopped_source(begun: impl FnOnce() + Send + 'static) -> (Driver, JoinHandle<mpsc::Receiver<Command>>) {
        let (commands, inbox) = mpsc::channel();
        let (events, feed) = tokio::sync::mpsc::unbounded_channel();
        let source = std::thread::spawn(move || {
            let send = |kind| events.send(Event { seq: 0, at_us: 0, lane: Lane::Speculative, kind }).unwrap();
            assert!(matches!(inbox.recv().unwrap(), Command::Generate { .. }));
            send(EventKind::Started { header: Box::new(header()) });
            begun();
            send(EventKind::Prompted { turn: 1, text: "x".into(), branch: None });
            assert_eq!(inbox.recv().unwrap(), Command::Stop);
            send(EventKind::Finished { reason: StopReason::Stopped });
            inbox
        });
        (Driver::new(Source { commands, events: feed.into() }), source)
    }

    #[test]
    fn an_answer_under_way_is_stopped_and_no_other_is_begun() {
        let flag = Arc::new(AtomicBool::new(false));
        let signal = Arc::clone(&flag);
        let (mut driver, source) = stopped_source(move || signal.store(true, Ordering::Relaxed));
        driver.stop_on(flag);
        assert_eq!(driver.answer(Prompt::Raw("x".into())), Outcome::Stopped);
        assert_eq!(driver.answer(Prompt::Raw("y".into())), Outcome::Stopped);
        let inbox = source.join().unwrap();
        driver.finish();
        assert_eq!(inbox.try_iter().collect::<Vec<_>>(), [Command::Shutdown]);
    }

    /// A pipe whose reader has gone.
    struct Gone;

    impl Consumer for Gone {
        fn name(&self) -> &str {
            "the text output"
        }
        fn event(&mut self, event: &Event) -> std::io::Result<()> {
            match event.kind {
                EventKind::Prompted { .. } => Err(ErrorKind::BrokenPipe.into()),
                _ => Ok(()),
            }
        }
        fn finish(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_answer_that_nobody_reads_any_longer_is_stopped() {
        let (mut driver, source) = stopped_source(|| {});
        driver.add(Box::new(Gone));
        assert_eq!(driver.answer(Prompt::Raw("x".into())), Outcome::Stopped);
        source.join().unwrap();
        assert_eq!(driver.finish()[0].error.kind(), ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_source_that_is_silent_while_it_loads_is_not_waited_for() {
        let (commands, _inbox) = mpsc::channel();
        let (_events, feed) = tokio::sync::mpsc::unbounded_channel();
        let flag = Arc::new(AtomicBool::new(false));
        let mut driver = Driver::new(Source { commands, events: feed.into() });
        driver.stop_on(Arc::clone(&flag));
        let signal = std::thread::spawn(move || {
            std::thread::sleep(TICK * 2);
            flag.store(true, Ordering::Relaxed);
        });
        assert_eq!(driver.answer(Prompt::Raw("x".into())), Outcome::Stopped, "there was no event at all");
        signal.join().unwrap();
    }

    #[test]
    fn what_still_loads_is_not_waited_for() {
        let (commands, _inbox) = mpsc::channel();
        let (events, feed) = tokio::sync::mpsc::unbounded_channel();
        let flag = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&flag);
        let answer = std::thread::spawn(move || {
            let mut driver = Driver::new(Source { commands, events: feed.into() });
            driver.stop_on(stop);
            driver.answer(Prompt::Raw("x".into()))
        });
        let loads = |done| {
            let kind = EventKind::Loading { stage: "weights".into(), done, total: 3 };
            events.send(Event { seq: 0, at_us: 0, lane: Lane::Speculative, kind }).unwrap();
        };
        loads(0);
        flag.store(true, Ordering::Relaxed);
        loads(1);
        assert_eq!(answer.join().unwrap(), Outcome::Stopped, "no further word of the source was needed");
    }
}
