//! The one-way stream of events from a source to its consumers.
//!
//! Invariant: every consumer sees every event in `seq` order, and all of them see it before the next event. A consumer
//! that fails is dropped with a notice, and the others continue. The stream does not know its ends: a live engine or a
//! recording; a file, a screen or a pipe.

mod gate;

use std::io;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::mpsc::{Receiver, UnboundedReceiver};

use crate::{Command, Event};

pub use gate::{Gate, Step};

/// A source of events that takes commands: a live engine or a replay, with one interface.
pub struct Source {
    /// Takes commands; the source polls them between phases.
    pub commands: mpsc::Sender<Command>,
    /// Its events.
    pub events: Feed,
}

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Events as they arrive.
pub enum Feed {
    /// From a live engine. Forward passes limit the rate; with a bounded channel a slow reader would change the
    /// measured times.
    Live(UnboundedReceiver<Event>),
    /// From a recording, which can wait for its reader.
    Recorded(Receiver<Event>),
}

impl Feed {
    /// Waits for the next event. None when the source has ended.
    pub async fn recv(&mut self) -> Option<Event> {
        match self {
            Self::Live(events) => events.recv().await,
            Self::Recorded(events) => events.recv().await,
        }
    }

    /// Blocks the thread until the next event. None when the source has ended.
    pub fn blocking_recv(&mut self) -> Option<Event> {
        match self {
            Self::Live(events) => events.blocking_recv(),
            Self::Recorded(events) => events.blocking_recv(),
        }
    }

    /// Blocks the thread until the next event, at most so long. Ready without an event when the source has ended.
    pub fn recv_within(&mut self, time: Duration) -> Poll<Option<Event>> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        let until = Instant::now() + time;
        loop {
            let next = match self {
                Self::Live(events) => events.poll_recv(&mut context),
                Self::Recorded(events) => events.poll_recv(&mut context),
            };
            let left = until.saturating_duration_since(Instant::now());
            if next.is_ready() || left.is_zero() {
                return next;
            }
            thread::park_timeout(left);
        }
    }

    /// The next event, without waiting.
    ///
    /// # Errors
    /// When there is none yet, or the source has ended.
    pub fn try_recv(&mut self) -> Result<Event, TryRecvError> {
        match self {
            Self::Live(events) => events.try_recv(),
            Self::Recorded(events) => events.try_recv(),
        }
    }

    /// Whether the reader should take events at once: some are waiting, or the sender may be waiting for the reader.
    #[must_use]
    pub fn is_pressing(&self) -> bool {
        match self {
            Self::Live(events) => !events.is_empty(),
            Self::Recorded(_) => true,
        }
    }
}

impl From<UnboundedReceiver<Event>> for Feed {
    fn from(events: UnboundedReceiver<Event>) -> Self {
        Self::Live(events)
    }
}

impl From<Receiver<Event>> for Feed {
    fn from(events: Receiver<Event>) -> Self {
        Self::Recorded(events)
    }
}

/// Something that uses events: a recorder, the session, a writer.
pub trait Consumer {
    /// Name in notices.
    fn name(&self) -> &str;

    /// Takes one event.
    ///
    /// # Errors
    /// An error drops this consumer from the stream; the others continue.
    fn event(&mut self, event: &Event) -> io::Result<()>;

    /// Called once after the last event.
    ///
    /// # Errors
    /// When the consumer could not complete its output, for example flush a file.
    fn finish(&mut self) -> io::Result<()>;
}

/// Passes each event to every consumer, in the order in which they were added.
#[derive(Default)]
pub struct FanOut {
    consumers: Vec<Box<dyn Consumer>>,
}

/// A consumer that failed and was dropped.
#[derive(Debug, thiserror::Error)]
#[error("{name} stopped: {error}")]
pub struct Dropped {
    /// Name of the consumer.
    pub name: String,
    /// Reason.
    pub error: io::Error,
}

impl FanOut {
    /// Adds a consumer after the existing ones.
    pub fn add(&mut self, consumer: Box<dyn Consumer>) {
        self.consumers.push(consumer);
    }

    /// Whether there are no consumers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.consumers.is_empty()
    }

    /// Passes one event on. Returns the consumers that failed and were dropped.
    pub fn event(&mut self, event: &Event) -> Vec<Dropped> {
        self.each(|consumer| consumer.event(event))
    }

    /// Finishes all consumers. Returns those that failed.
    pub fn finish(&mut self) -> Vec<Dropped> {
        self.each(|consumer| consumer.finish())
    }

    fn each(&mut self, mut call: impl FnMut(&mut dyn Consumer) -> io::Result<()>) -> Vec<Dropped> {
        let mut dropped = Vec::new();
        self.consumers.retain_mut(|consumer| match call(consumer.as_mut()) {
            Ok(()) => true,
            Err(error) => {
                dropped.push(Dropped { name: consumer.name().to_owned(), error });
                false
            }
        });
        dropped
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;
    use crate::{EventKind, Lane};

    struct Probe {
        seen: Rc<RefCell<Vec<u64>>>,
        fail_at: Option<u64>,
    }

    impl Consumer for Probe {
        fn name(&self) -> &str {
            "probe"
        }
        fn event(&mut self, event: &Event) -> io::Result<()> {
            if self.fail_at == Some(event.seq) {
                return Err(io::Error::other("disk full"));
            }
            self.seen.borrow_mut().push(event.seq);
            Ok(())
        }
        fn finish(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_failing_consumer_is_dropped_and_the_others_continue() {
        let (good, bad) = (Rc::default(), Rc::default());
        let mut fan = FanOut::default();
        fan.add(Box::new(Probe { seen: Rc::clone(&bad), fail_at: Some(1) }));
        fan.add(Box::new(Probe { seen: Rc::clone(&good), fail_at: None }));
        let dropped: Vec<_> = (0..3)
            .flat_map(|seq| fan.event(&Event { seq, at_us: 0, lane: Lane::default(), kind: EventKind::Paused }))
            .map(|d| d.to_string())
            .collect();
        assert_eq!(dropped, ["probe stopped: disk full"]);
        assert_eq!(*good.borrow(), [0, 1, 2]);
        assert_eq!(*bad.borrow(), [0]);
    }
}
