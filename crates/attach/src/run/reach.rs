//! Connects to the servers of a run.

use draftscope_http::{Access, Client, Patience};
use draftscope_protocol::EventKind;

use crate::address;
use crate::config::{AttachConfig, PlainServer, QUICK};
use crate::connect::connect;
use crate::models::WantedModel;
use crate::outbox::Outbox;
use crate::server::{Server, Wishes};

/// Connects to the server that is attached to.
pub(super) fn reach(config: &AttachConfig, outbox: &mut Outbox) -> Result<Box<dyn Server>, String> {
    let wishes = Wishes { api: config.api, model: config.model.clone(), leaves_sampling: config.leaves_sampling };
    connect_to((&config.url, &config.access, config.patience), &wishes, false, outbox)
}

/// Connects to the plain server, which need not have the named model.
pub(super) fn reach_plain(
    config: &AttachConfig,
    plain: &PlainServer,
    outbox: &mut Outbox,
) -> Result<Box<dyn Server>, String> {
    let model = config.model.clone().map(|model| WantedModel { hint_of: Some("--model"), ..model });
    let wishes = Wishes { api: config.api, model, leaves_sampling: config.leaves_sampling };
    connect_to((&plain.url, &plain.access, config.patience), &wishes, true, outbox)
}

fn connect_to(
    (url, access, patience): (&str, &Access, Patience),
    wishes: &Wishes,
    is_plain: bool,
    outbox: &mut Outbox,
) -> Result<Box<dyn Server>, String> {
    let url = address::base(url);
    let client = |patience| Client::new(&url, access.clone(), patience).map_err(|error| error.to_string());
    let (client, quick) = (client(patience)?, client(QUICK)?);
    outbox.send(EventKind::Loading { stage: format!("asking {}", client.host()), done: 0, total: 0 });
    connect(&client, &quick, wishes).map_err(|error| error.in_words(&client, is_plain))
}
