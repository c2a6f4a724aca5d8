//! Finds out what a server is.

use draftscope_http::{Client, HttpError};

use super::llama::rounds::Rounds;
use super::names::Names;
use super::openai::{Dialect, OpenAi};
use super::router;
use super::server::{Api, ConnectError, Line, Reader, Server, Wishes};
use super::step::Part;

/// Asks a server which API it has, unless that is given.
///
/// # Errors
/// Nothing answers, the key is refused, the server has another API, or several models of which none is named.
pub(super) fn connect(client: &Client, quick: &Client, wishes: &Wishes) -> Result<Box<dyn Server>, ConnectError> {
    match wishes.api {
        Some(Api::Llama) => match router::llama(client, wishes)? {
            Some(llama) => Ok(Box::new(llama)),
            None => Err(ConnectError::Words(format!("{} is no llama-server: it has no /props", client.host()))),
        },
        Some(Api::Vllm) => openai(client, quick, wishes, Some(Dialect::Vllm)),
        Some(Api::Sglang) => openai(client, quick, wishes, Some(Dialect::Sglang)),
        Some(Api::Openai) => openai(client, quick, wishes, Some(Dialect::Plain)),
        None => match router::llama(client, wishes)? {
            Some(llama) => Ok(Box::new(llama)),
            None => openai(client, quick, wishes, None),
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

fn openai(
    client: &Client,
    quick: &Client,
    wishes: &Wishes,
    dialect: Option<Dialect>,
) -> Result<Box<dyn Server>, ConnectError> {
    match OpenAi::connect(client, quick, wishes, dialect) {
        Ok(server) => Ok(Box::new(server)),
        Err(ConnectError::Http(
            HttpError::Status { status: 404 | 405 | 501, host, .. } | HttpError::NotJson { host, .. },
        )) => Err(ConnectError::Words(format!(
            "{host} has neither llama-server's /props nor an OpenAI-compatible /v1/models: draftscope cannot attach to it"
        ))),
        Err(error) => Err(error),
    }
}
