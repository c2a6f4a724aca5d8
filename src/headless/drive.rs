//! Runs a source without a screen: sends a prompt, hands events on until every lane has finished.

use crate::protocol::{Baseline, Command, EventKind, Lane, Prompt, Settings, StopReason};
use crate::session::Session;
use crate::stream::{Consumer, Dropped, FanOut, Source};

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All lanes finished.
    Answered,
    /// The source refused the prompt or failed: one sentence.
    Failed(String),
}

/// A source, its consumers, and what happened so far.
pub struct Driver {
    source: Source,
    consumers: FanOut,
    session: Session,
    dropped: Vec<Dropped>,
}

impl Driver {
    /// Drives this source.
    #[must_use]
    pub fn new(source: Source) -> Self {
        Self { source, consumers: FanOut::default(), session: Session::new(), dropped: Vec::new() }
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

    /// Asks something of the source that is no prompt.
    pub fn send(&self, command: Command) {
        // a source that is gone says why in its last event
        let _ = self.source.commands.send(command);
    }

    /// Sends a prompt and waits until its answer is complete.
    pub fn answer(&mut self, prompt: Prompt) -> Outcome {
        // a source that is gone says why in its last event
        let _ = self.source.commands.send(Command::Generate { prompt });
        let mut open = vec![Lane::Speculative];
        while !open.is_empty() {
            let Some(event) = self.source.events.blocking_recv() else {
                return Outcome::Failed("the engine ended without a word; please report this".into());
            };
            self.dropped.extend(self.consumers.event(&event));
            self.session.apply(&event);
            match event.kind {
                EventKind::Failed { message } => return Outcome::Failed(message),
                EventKind::Finished { reason: StopReason::Refused } => {
                    let notice = self.session.notices().next_back();
                    return Outcome::Failed(notice.unwrap_or("the prompt was refused").to_owned());
                }
                EventKind::Finished { .. } => open.retain(|lane| *lane != event.lane),
                EventKind::Prefilled { .. } if event.lane == Lane::Speculative => {
                    open.extend(beside(self.session.settings()));
                }
                _ => {}
            }
        }
        Outcome::Answered
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
