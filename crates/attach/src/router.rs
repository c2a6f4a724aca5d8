//! llama-server as one of the two that it can be: with a model of its own, or as a router to several.
//!
//! Invariant: a router is asked for no answer before one of its models is chosen, and then by name in every request.

use serde_json::Value;

use draftscope_http::{Client, HttpError};

use super::address::with_model;
use super::llama::Llama;
use super::models::{self, Chosen};
use super::server::{ConnectError, Wishes};

pub(super) const MODELS: &str = "/v1/models";

/// A llama-server; none if something else answers.
///
/// # Errors
/// When nothing answers, the key is refused, or the model that is meant cannot be found out.
pub(super) fn llama(client: &Client, wishes: &Wishes) -> Result<Option<Llama>, ConnectError> {
    match client.get_json("/props") {
        Ok(props) if is_router(&props) => behind_router(client, wishes).map(Some),
        Ok(props) if props.get("default_generation_settings").is_some() => single(client, props, wishes).map(Some),
        Ok(_) | Err(HttpError::NotJson { .. }) => Ok(None),
        Err(HttpError::Status { status: 400, message, .. }) if wants_model(&message) => {
            behind_router(client, wishes).map(Some)
        }
        Err(HttpError::Status { status, .. }) if !matches!(status, 401 | 403 | 503) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn is_router(props: &Value) -> bool {
    props.get("role").and_then(Value::as_str) == Some("router")
}

/// Whether a router's error says that a request names no model.
pub(super) fn wants_model(message: &str) -> bool {
    message.contains("model name is missing")
}

/// A server with one model, which answers whatever model a request names: so another one is an error here.
fn single(client: &Client, props: Value, wishes: &Wishes) -> Result<Llama, ConnectError> {
    let mut notices = Vec::new();
    if let Some(wanted) = &wishes.model {
        let listed = client.get_json(MODELS).ok().and_then(|answer| models::list(&answer)).unwrap_or_default();
        let path = props.get("model_path").and_then(Value::as_str).unwrap_or_default().to_owned();
        let own = models::Listed { id: path, entry: Value::Null };
        let is_it =
            models::find(&listed, &wanted.name).or_else(|| models::find(std::slice::from_ref(&own), &wanted.name));
        match wanted.left_aside(client.host()) {
            _ if is_it.is_some() => {}
            Some(notice) => notices.push(notice),
            None => {
                let all = if listed.is_empty() { own.id } else { models::names(&listed) };
                let host = client.host();
                return Err(format!("{host} does not have the model {}; it has {all}", wanted.name).into());
            }
        }
    }
    Ok(Llama::new(client, props, None, wishes.leaves_sampling).with_notices(notices))
}

fn behind_router(client: &Client, wishes: &Wishes) -> Result<Llama, ConnectError> {
    let listed = models::list(&client.get_json(MODELS)?).unwrap_or_default();
    let Chosen { model, is_listed, notices } = models::choose(&listed, wishes.model.as_ref(), client.host())?;
    if !is_listed {
        let (host, all) = (client.host(), models::names(&listed));
        return Err(format!("{host} does not have the model {}; it has {all}", model.id).into());
    }
    // a router loads a model when it is first asked for
    let props = client.get_json_slowly(&with_model("/props", &model.id))?;
    Ok(Llama::new(client, props, Some(model.id), wishes.leaves_sampling).with_notices(notices))
}
