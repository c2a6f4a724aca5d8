//! The one-way stream: a source of events at one end, consumers at the other.
//!
//! Invariant: every consumer sees every event, in `seq` order, before the next event is handed on.
//! A consumer that fails is dropped with a notice and the others go on. What is at either end (a
//! live engine or a recording; a file, a screen or a pipe) is unknown here.

mod gate;

use std::io;
use std::sync::mpsc;

use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::mpsc::{Receiver, UnboundedReceiver};

use crate::protocol::{Command, Event};

pub use gate::{Gate, Step};

/// Where events come from and commands go to: a live engine and a replay look alike.
pub struct Source {
    /// Takes requests; polled between phases.
    pub commands: mpsc::Sender<Command>,
    /// What happens.
    pub events: Feed,
}

/// Events as they arrive.
pub enum Feed {
    /// Of a live engine: the rate is capped by forward passes, and a bounded channel would let a slow
    /// reader change the timings that are shown.
    Live(UnboundedReceiver<Event>),
    /// Of a recording, which can wait for its reader.
    Recorded(Receiver<Event>),
}

impl Feed {
    /// The next event, when it comes; none when no more can.
    pub async fn recv(&mut self) -> Option<Event> {
        match self {
            Self::Live(events) => events.recv().await,
            Self::Recorded(events) => events.recv().await,
        }
    }

    /// The same for a thread that has nothing else to do.
    pub fn blocking_recv(&mut self) -> Option<Event> {
        match self {
            Self::Live(events) => events.blocking_recv(),
            Self::Recorded(events) => events.blocking_recv(),
        }
    }

    /// The next event if it is there.
    ///
    /// # Errors
    /// When there is none yet, or no more can come.
    pub fn try_recv(&mut self) -> Result<Event, TryRecvError> {
        match self {
            Self::Live(events) => events.try_recv(),
            Self::Recorded(events) => events.try_recv(),
        }
    }

    /// Whether events are to be taken at once: some wait, or whoever sends them would have to.
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
    /// What a notice calls it.
    fn name(&self) -> &str;

    /// Takes one event.
    ///
    /// # Errors
    /// An error drops this consumer from the stream; the others go on.
    fn event(&mut self, event: &Event) -> io::Result<()>;

    /// Called once after the last event.
    ///
    /// # Errors
    /// When what was taken could not be brought to its end (a flush, say).
    fn finish(&mut self) -> io::Result<()>;
}

/// Hands each event to every consumer, in the order in which they were added.
#[derive(Default)]
pub struct FanOut {
    consumers: Vec<Box<dyn Consumer>>,
}

/// A consumer that failed and was dropped.
#[derive(Debug, thiserror::Error)]
#[error("{name} stopped: {error}")]
pub struct Dropped {
    /// Which consumer.
    pub name: String,
    /// Why.
    pub error: io::Error,
}

impl FanOut {
    /// Adds a consumer behind those already there.
    pub fn add(&mut self, consumer: Box<dyn Consumer>) {
        self.consumers.push(consumer);
    }

    /// Whether nobody listens.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.consumers.is_empty()
    }

    /// Hands one event on; returns the consumers that failed and are gone now.
    pub fn event(&mut self, event: &Event) -> Vec<Dropped> {
        self.each(|consumer| consumer.event(event))
    }

    /// Ends all consumers; returns those that failed to.
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
    use crate::protocol::{EventKind, Lane};

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
    fn a_failing_consumer_is_dropped_and_the_others_go_on() {
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
