//! The live source: a decoder on a thread of its own, commands in, events out.
//!
//! Invariant: everything the thread has to say is an event, failures included; it never writes to
//! the terminal or a file and never ends without a word. Who listens is unknown here. What is added
//! to the decoder's events: `seq`, `at_us` and the bytes of tokens.

mod control;
pub mod measure;
mod outbox;
mod turn;
mod worker;

use std::io;
use std::sync::mpsc;
use std::thread;

use crate::model::load::Recipe;
use crate::protocol::Settings;
use crate::stream::Source;

/// What a run starts with.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The models.
    pub recipe: Recipe,
    /// Settings at the start.
    pub settings: Settings,
}

/// Starts the engine. Loading happens on its thread and is told by events.
///
/// # Errors
/// When the system gives no thread.
pub fn spawn(config: EngineConfig) -> io::Result<Source> {
    let (commands, inbox) = mpsc::channel();
    let (outbox, events) = tokio::sync::mpsc::unbounded_channel();
    thread::Builder::new().name("engine".into()).spawn(move || worker::run(&config, inbox, outbox))?;
    Ok(Source { commands, events })
}
