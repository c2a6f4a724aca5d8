//! A source that is somebody else's engine: an HTTP server in place of our own decoder.
//!
//! One thread owns the run. It asks the server, obeys commands and sends the same events as our engine; another thread
//! reads each answer, so that a stop is obeyed at once. Invariant: the thread never ends without an event, text of the
//! server reaches events only as text, and no header that may hold a key is written to an event.

pub mod address;
mod answer;
mod doubts;
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
pub mod sse;
pub mod step;
pub mod watch;

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::http::{Access, Patience};
use crate::protocol::Settings;
use crate::stream::Source;

pub use models::WantedModel;
pub use server::{API_KEY, Api, PLAIN_API_KEY, read_stream};

/// A server to attach to.
#[derive(Clone)]
pub struct AttachConfig {
    /// Its address.
    pub url: String,
    /// Its API; none to ask.
    pub api: Option<Api>,
    /// The model of several; none for the only one.
    pub model: Option<WantedModel>,
    /// Whether the server's own sampling counts, and that of the settings is not sent.
    pub leaves_sampling: bool,
    /// Its credentials, and who may sign its certificate.
    pub access: Access,
    /// A second server with the same model and without speculation, which answers the same prompts.
    pub plain: Option<PlainServer>,
    /// The socket of the engine's plugin, which reports every round whole.
    pub socket: Option<socket::address::Address>,
    /// Whether the target's predictions are asked after every answer.
    pub probe: bool,
    /// Settings at the start; those of drafting are the server's own.
    pub settings: Settings,
    /// How long to wait.
    pub patience: Patience,
}

/// A server that decodes without speculation. It gets credentials of its own only.
#[derive(Clone)]
pub struct PlainServer {
    /// Its address.
    pub url: String,
    /// Its credentials, and who may sign its certificate.
    pub access: Access,
}

impl AttachConfig {
    /// A server at this address, recognised by asking it.
    #[must_use]
    pub fn new(url: &str, settings: Settings) -> Self {
        let (url, access, patience) = (url.to_owned(), Access::default(), PATIENCE);
        Self {
            url,
            api: None,
            model: None,
            leaves_sampling: false,
            access,
            plain: None,
            socket: None,
            probe: false,
            settings,
            patience,
        }
    }
}

/// How long to wait for a server that may have a long prompt to process.
pub const PATIENCE: Patience =
    Patience { connect: Duration::from_secs(5), answer: Duration::from_secs(600), silence: Duration::from_secs(120) };

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
