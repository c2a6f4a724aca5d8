//! What draftscope needs of a server, whatever its API: a header, an answer, the steps of its stream.

use serde_json::Value;

use crate::http::{Client, HttpError};
use crate::protocol::{Header, Piece, Prediction, Prompt, Settings, TokenId, named_enum};

use super::llama::Llama;
use super::llama::rounds::Rounds;
use super::names::Names;
use super::openai::{Dialect, OpenAi};
use super::step::Part;

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
    pub(super) path: &'static str,
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

    /// Whether the same prompt should be sent once more: the server refused an option that it can do without.
    fn relax(&mut self, _refusal: &str) -> bool {
        false
    }

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

/// Turns the lines of a stream into parts of an answer.
pub(super) trait Reader: Send {
    /// Takes a line that arrived so many microseconds after the request.
    fn line(&mut self, line: &str, at_us: u64, names: &mut Names) -> Line;

    /// The stream is over, or nobody reads it any longer. Ends with [`Part::End`] if the answer is whole.
    fn close(&mut self) -> Vec<Part>;
}

/// Asks a server which API it has, unless that is given.
///
/// # Errors
/// One sentence: nothing answers, the key is refused, or the server has another API.
pub(super) fn connect(client: &Client, quick: &Client, api: Option<Api>) -> Result<Box<dyn Server>, String> {
    match api {
        Some(Api::Llama) => match llama(client).map_err(|error| error.to_string())? {
            Some(llama) => Ok(llama),
            None => Err(format!("{} is no llama-server: it has no /props", client.host())),
        },
        Some(Api::Vllm) => openai(client, quick, Some(Dialect::Vllm)),
        Some(Api::Sglang) => openai(client, quick, Some(Dialect::Sglang)),
        Some(Api::Openai) => openai(client, quick, Some(Dialect::Plain)),
        None => match llama(client).map_err(|error| error.to_string())? {
            Some(llama) => Ok(llama),
            None => openai(client, quick, None),
        },
    }
}

/// What the stream of an answer amounts to, read from its text alone: no server is asked.
#[must_use]
pub fn read_stream(api: Api, text: &str) -> Vec<Part> {
    let mut reader: Box<dyn Reader> = match api {
        Api::Llama => Box::new(Rounds::default()),
        Api::Vllm => OpenAi::offline_reader(Dialect::Vllm),
        Api::Sglang => OpenAi::offline_reader(Dialect::Sglang),
        Api::Openai => OpenAi::offline_reader(Dialect::Plain),
    };
    let (mut names, mut parts) = (Names::default(), Vec::new());
    for (line, at_us) in text.lines().zip(0..) {
        match reader.line(line, at_us, &mut names) {
            Line::Parts(more) => parts.extend(more),
            Line::Error(_) => break,
            Line::Empty | Line::Garbage => {}
        }
    }
    parts.extend(reader.close());
    parts
}

/// A llama-server; none if something else answers.
fn llama(client: &Client) -> Result<Option<Box<dyn Server>>, HttpError> {
    match client.get_json("/props") {
        Ok(props) if props.get("default_generation_settings").is_some() => {
            Ok(Some(Box::new(Llama::new(client, props))))
        }
        Ok(_) | Err(HttpError::NotJson { .. }) => Ok(None),
        Err(HttpError::Status { status, .. }) if !matches!(status, 401 | 403 | 503) => Ok(None),
        Err(error) => Err(error),
    }
}

fn openai(client: &Client, quick: &Client, dialect: Option<Dialect>) -> Result<Box<dyn Server>, String> {
    match OpenAi::connect(client, quick, dialect) {
        Ok(server) => Ok(Box::new(server)),
        Err(HttpError::Status { status: 404 | 405 | 501, host, .. } | HttpError::NotJson { host, .. }) => Err(format!(
            "{host} has neither llama-server's /props nor an OpenAI-compatible /v1/models: draftscope cannot attach to it"
        )),
        Err(error) => Err(error.to_string()),
    }
}
