//! The live source: a decoder on a thread of its own, commands in, events out.
//!
//! Invariant: the thread reports everything as events, failures included. It never writes to the terminal or a file,
//! never ends without an event, and does not know its listeners. It adds to the decoder's events: `seq`, `at_us` and
//! the bytes of tokens.

mod auto;
mod config;
mod control;
mod cost_memory;
pub mod generate;
pub mod grammar;
pub mod identity;
pub mod measure;
mod outbox;
mod plain;
mod replayed;
mod replaying;
pub mod speculate;
mod turn;
mod worker;

use std::sync::{Arc, mpsc};
use std::{io, thread};

use crate::speculate::drafter::DrafterSet;
pub use config::EngineConfig;
use cost_memory::NoMemory;
pub use cost_memory::{CostKey, CostMemory};
use draftscope_model::load::Loaded;
use draftscope_protocol::stream::Source;

/// All drafters of a loaded model, and what else was loaded.
#[must_use]
pub fn drafter_set(loaded: Loaded) -> (DrafterSet, Loaded) {
    let (drafters, loaded) = worker::drafters(loaded);
    (drafters.drafter_set, loaded)
}

/// Starts the engine. It loads the models on its own thread and reports its progress by events.
///
/// # Errors
/// When the system cannot start a thread.
pub fn spawn(config: EngineConfig) -> io::Result<Source> {
    spawn_with(config, Arc::new(NoMemory))
}

/// Starts the engine with a memory of measured costs.
///
/// # Errors
/// As [`spawn`].
pub fn spawn_with(config: EngineConfig, memory: Arc<dyn CostMemory>) -> io::Result<Source> {
    let (commands, inbox) = mpsc::channel();
    let (outbox, events) = tokio::sync::mpsc::unbounded_channel();
    thread::Builder::new().name("engine".into()).spawn(move || worker::run(&config, memory, inbox, outbox))?;
    Ok(Source { commands, events: events.into() })
}
