//! What draftscope needs of a server, whatever its API: a header, an answer, the steps of its stream.

use serde_json::Value;

use draftscope_http::{Client, HttpError};
use draftscope_protocol::{Header, Piece, Prediction, Prompt, Settings, TokenId, named_enum};

use super::models::WantedModel;
use super::names::Names;
use super::sse::Sent;
use super::step::Part;

/// The variable with the API key of the server at URL.
pub const API_KEY: &str = "DRAFTSCOPE_API_KEY";

/// The variable with the API key of the server of `--plain-url`.
pub const PLAIN_API_KEY: &str = "DRAFTSCOPE_PLAIN_API_KEY";

/// What is wanted of a server.
#[derive(Clone, Debug, Default)]
pub(super) struct Wishes {
    /// Its API; none to ask.
    pub(super) api: Option<Api>,
    /// The model; none for the only one.
    pub(super) model: Option<WantedModel>,
    /// Whether the server's own sampling counts.
    pub(super) leaves_sampling: bool,
}

named_enum! {
    /// The API of a server.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Api {
        /// llama-server's own routes.
        Llama = "llama",
        /// OpenAI routes with vLLM's fields.
        Vllm = "vllm",
        /// OpenAI routes with SGLang's fields.
        Sglang = "sglang",
        /// OpenAI routes and nothing else: text and speed.
        Openai = "openai",
    }
}

impl std::str::FromStr for Api {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().copied().find(|api| api.name() == name);
        found.ok_or_else(|| format!("it must be one of {}", Self::NAMES.join(", ")))
    }
}

/// A request that streams an answer.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) path: String,
    pub(super) body: Value,
    /// Tokens of the prompt, as far as they are known before the answer.
    pub(super) prompt: Vec<Piece>,
}

/// A server, and what was learned from it.
pub(super) trait Server: Send {
    /// Name in sentences.
    fn name(&self) -> &'static str;

    /// Where requests go.
    fn client(&self) -> &Client;

    /// The header of a run, and sentences about what is not known.
    fn header(&mut self, settings: Settings, started_unix_ms: u64) -> (Header, Vec<String>);

    /// The request for an answer.
    ///
    /// # Errors
    /// A sentence that says why the prompt cannot be sent.
    fn request(&mut self, prompt: &Prompt, settings: &Settings) -> Result<Request, String>;

    /// Reads the stream of one answer.
    fn reader(&self) -> Box<dyn Reader>;

    /// What is known of tokens.
    fn names(&mut self) -> &mut Names;

    /// A sentence if the same prompt should be sent once more: the server refused an option that it can do without.
    fn relax(&mut self, _refusal: &str) -> Option<String> {
        None
    }

    /// From now on the sampling of the settings is sent, also where the server's own counted.
    fn send_sampling(&mut self);

    /// The target's prediction after these tokens, asked with a request of its own.
    ///
    /// # Errors
    /// A sentence.
    fn row_after(&mut self, _tokens: &[TokenId]) -> Result<Prediction, String> {
        Err(format!("{} cannot be asked for predictions afterwards", self.name()))
    }
}

/// What a line of a stream amounts to.
#[derive(Debug, PartialEq)]
pub(super) enum Line {
    /// Nothing.
    Empty,
    /// Something that is no chunk.
    Garbage,
    /// The server reports an error, which ends the stream.
    Error(String),
    /// Parts of the answer, none or several.
    Parts(Vec<Part>),
}

impl Line {
    /// What came with a line: `take` turns each piece into parts, or into the words of an error.
    pub(super) fn of(sent: Vec<Sent>, mut take: impl FnMut(Sent) -> Result<Vec<Part>, String>) -> Self {
        if sent.is_empty() {
            return Self::Empty;
        }
        let is_garbage = sent.iter().any(|one| matches!(one, Sent::Garbage(_)));
        match sent.into_iter().map(&mut take).collect::<Result<Vec<_>, String>>() {
            Err(words) => Self::Error(words),
            Ok(parts) if is_garbage && parts.iter().all(Vec::is_empty) => Self::Garbage,
            Ok(parts) => Self::Parts(parts.concat()),
        }
    }
}

/// Turns the lines of a stream into parts of an answer.
pub(super) trait Reader: Send {
    /// Takes a line that arrived so many microseconds after the request.
    fn line(&mut self, line: &str, at_us: u64, names: &mut Names) -> Line;

    /// The stream is over, or nobody reads it any longer. Ends with [`Part::End`] if the answer is whole.
    fn close(&mut self) -> Vec<Part>;
}

/// An error of a server as a sentence. A refused key names the variable that holds it, that of `--plain-url` if `is_plain`.
pub(super) fn in_words(error: &HttpError, client: &Client, is_plain: bool) -> String {
    let (variable, option) = if is_plain { (PLAIN_API_KEY, "--plain-header") } else { (API_KEY, "--header") };
    match error {
        HttpError::Status { host, status: 401 | 403, message, .. } if client.has_credentials() => {
            format!("{host} refuses the key in {variable} or {option}: {message}")
        }
        HttpError::Status { host, status: 401 | 403, message, .. } => format!(
            "{host} wants a key ({message}): set {variable}, or {option} NAME=ENVVAR for a header of another name"
        ),
        HttpError::Status { host, status: 503, message, .. } if message.to_lowercase().contains("loading") => {
            format!("{host} is loading its model ({message}): wait, and try again")
        }
        error => error.to_string(),
    }
}

/// Why a server cannot be attached to.
#[derive(Debug)]
pub(super) enum ConnectError {
    /// A request failed.
    Http(HttpError),
    /// A sentence.
    Words(String),
}

impl From<HttpError> for ConnectError {
    fn from(error: HttpError) -> Self {
        Self::Http(error)
    }
}

impl From<String> for ConnectError {
    fn from(words: String) -> Self {
        Self::Words(words)
    }
}

impl ConnectError {
    /// The sentence for the user; see [`in_words`].
    pub(super) fn in_words(&self, client: &Client, is_plain: bool) -> String {
        match self {
            Self::Http(error) => in_words(error, client, is_plain),
            Self::Words(words) => words.clone(),
        }
    }
}
