//! The live source: a decoder on a thread of its own, commands in, events out.
//!
//! Invariant: the thread reports everything as events, failures included. It never writes to the terminal or a file,
//! never ends without an event, and does not know its listeners. It adds to the decoder's events: `seq`, `at_us` and
//! the bytes of tokens.

mod auto;
mod control;
pub mod generate;
pub mod grammar;
pub mod identity;
pub mod measure;
mod outbox;
mod plain;
mod replayed;
pub mod speculate;
mod turn;
mod worker;

use std::io;
use std::sync::{Arc, mpsc};
use std::thread;

use serde::{Deserialize, Serialize};

use crate::speculate::drafter::DrafterSet;
use draftscope_model::load::Loaded;
use draftscope_model::options::LoadOptions;
use draftscope_protocol::stream::Source;
use draftscope_protocol::{Costs, Grammar, Header, Settings};

/// How a run starts.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The models.
    pub recipe: LoadOptions,
    /// Settings at the start.
    pub settings: Settings,
    /// What every answer must match; none for free text.
    pub grammar: Option<Grammar>,
}

/// What measured costs depend on: they are valid only for an equal key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostKey {
    /// Name and version of the program.
    pub program: String,
    /// The target's file, and its sha256 when known.
    pub model: String,
    /// Bytes of its weights.
    pub weight_bytes: u64,
    /// The drafter, and its sha256 when known.
    pub drafter: String,
    /// The device that computes.
    pub device: String,
    /// The kernels that compute.
    pub backend: String,
    /// Dtype of the weights.
    pub dtype: String,
    /// Threads that compute.
    pub threads: u32,
}

impl CostKey {
    /// The key of a run.
    #[must_use]
    pub fn of(header: &Header) -> Self {
        let name = |name: &str, sha256: Option<&str>| format!("{name} {}", sha256.unwrap_or("unknown"));
        let drafter = header.drafter.as_ref();
        Self {
            program: header.program.clone(),
            model: name(&header.model.file, header.model.sha256.as_deref()),
            weight_bytes: header.model.weight_bytes,
            drafter: drafter
                .map_or("none".to_owned(), |d| format!("{} {}", d.kind, name(&d.name, d.sha256.as_deref()))),
            device: header.device.clone(),
            backend: header.backend.clone(),
            dtype: header.dtype.clone(),
            threads: header.threads,
        }
    }
}

/// Stores measured costs between runs. If it fails, the costs are measured again.
pub trait CostMemory: Send + Sync {
    /// Costs measured under an equal key.
    fn recall(&self, key: &CostKey) -> Option<Costs>;
    /// Stores costs.
    fn remember(&self, key: &CostKey, costs: &Costs);
}

/// Stores nothing.
struct NoMemory;

impl CostMemory for NoMemory {
    fn recall(&self, _: &CostKey) -> Option<Costs> {
        None
    }
    fn remember(&self, _: &CostKey, _: &Costs) {}
}

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
