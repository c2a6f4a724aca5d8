//! What sends requests: ureq with the waits of a client, without redirects, idle connections and compression.

use ureq::Agent;
use ureq::tls::TlsConfig;
use ureq::unversioned::transport::{Connector as _, DefaultConnector};

use super::first_byte::FirstByte;
use super::patience::Patience;
use super::proxy::Route;
use super::resolver::Lookup;

/// What sends the requests of a client, through a proxy if one leads to the server.
pub(super) fn of(patience: Patience, tls: TlsConfig, route: Option<&Route>) -> Agent {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .accept_encoding("identity")
        .user_agent(concat!("draftscope/", env!("CARGO_PKG_VERSION")))
        // a server may close an idle connection at any time, and a POST must not be sent twice
        .max_idle_connections(0)
        .timeout_resolve(Some(patience.connect))
        .timeout_connect(Some(patience.connect))
        .timeout_recv_response(Some(patience.answer))
        .tls_config(tls);
    // ureq reads the environment itself, and takes one proxy for all schemes
    let config = config.proxy(route.map(|route| route.proxy.clone()));
    let waits = FirstByte { answer: patience.answer, silence: patience.silence };
    let connector = DefaultConnector::default().chain(waits);
    Agent::with_parts(config.build(), connector, Lookup)
}
