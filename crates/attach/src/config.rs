//! What an attached run is started with.

use std::time::Duration;

use draftscope_http::{Access, Patience};
use draftscope_protocol::{Grammar, Settings};

use super::models::WantedModel;
use super::server::Api;
use super::socket::address::Address;

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
    pub socket: Option<Address>,
    /// How long a step of an answer waits for the round that the plugin reports of it.
    pub round_wait: Duration,
    /// Whether the target's predictions are asked after every answer.
    pub probe: bool,
    /// Settings at the start; those of drafting are the server's own.
    pub settings: Settings,
    /// What every answer must match; only JSON schemas are sent.
    pub grammar: Option<Grammar>,
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
            round_wait: ROUND_WAIT,
            probe: false,
            settings,
            grammar: None,
            patience,
        }
    }
}

/// How long to wait for a server that may have a long prompt to process.
pub const PATIENCE: Patience =
    Patience { connect: Duration::from_secs(5), answer: Duration::from_secs(600), silence: Duration::from_secs(120) };

/// How long a step waits for its round, which may arrive after the step's chunk.
const ROUND_WAIT: Duration = Duration::from_secs(1);

/// How long to wait for what a server answers at once.
pub(super) const QUICK: Patience =
    Patience { connect: Duration::from_secs(3), answer: Duration::from_secs(3), silence: Duration::from_secs(3) };
