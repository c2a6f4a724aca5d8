//! A source that is somebody else's engine: an HTTP server in place of our own decoder.
//!
//! One thread owns the run. It asks the server, obeys commands and sends the same events as our engine; another thread
//! reads each answer, so that a stop is obeyed at once. Invariant: the thread never ends without an event, text of the
//! server reaches events only as text, and no secret that a server was sent is written to an event.

pub mod address;
mod answer;
mod config;
mod connect;
mod doubts;
mod errors;
mod grammar;
mod lanes;
mod lenient;
pub mod llama;
pub mod metrics;
mod models;
pub mod names;
pub mod openai;
mod outbox;
mod read;
mod repair;
mod router;
mod run;
mod server;
pub mod socket;
mod spread;
pub mod sse;
pub mod step;
pub mod watch;

use std::io;
use std::sync::mpsc;
use std::thread;

use draftscope_protocol::stream::Source;

pub use config::{AttachConfig, PATIENCE, PlainServer};
pub use connect::read_stream;
pub use models::WantedModel;
pub use server::{API_KEY, Api, PLAIN_API_KEY};

/// Attaches to a server. It is asked on a thread of its own; failures are events.
///
/// # Errors
/// When the system cannot start a thread.
pub fn spawn(config: AttachConfig) -> io::Result<Source> {
    let (commands, inbox) = mpsc::channel();
    let (sender, events) = tokio::sync::mpsc::unbounded_channel();
    thread::Builder::new().name("attach".into()).spawn(move || run::run(&config, inbox, sender))?;
    Ok(Source { commands, events: events.into() })
}
