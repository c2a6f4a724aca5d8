//! Servers that others use, from what they say of themselves again and again.
//!
//! Invariant: a rate is a difference of counters ÷ the time between two looks at the same run of a server, or none. A
//! server that does not answer, or was started anew, has no rates of the time before.

mod alert;
mod live;
mod positions;
mod rates;
mod watched;

use serde::Serialize;

use draftscope_protocol::ServerSample;

pub use alert::{Alert, Fired};
pub use positions::Share;
pub use rates::{Latency, Rates};
pub use watched::Watched;

/// All servers.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    servers: Vec<Watched>,
    alerts: Vec<Alert>,
}

/// A look with the rates that go with it, for JSON.
#[derive(Serialize)]
pub struct WatchLine<'a> {
    /// The look.
    #[serde(flatten)]
    pub sample: &'a ServerSample,
    /// Over the last ten seconds.
    pub recent: Rates,
    /// Since the server started.
    pub since_start: Rates,
    /// The conditions that hold, each for as long as it asks for.
    pub alerts: Vec<&'a str>,
}

impl Fleet {
    /// So many servers, of which nothing is known yet.
    #[must_use]
    pub fn new(servers: usize) -> Self {
        Self { servers: vec![Watched::default(); servers], alerts: Vec::new() }
    }

    /// The same servers, with conditions that are checked at each look.
    #[must_use]
    pub fn with_alerts(self, alerts: Vec<Alert>) -> Self {
        Self { alerts, ..self }
    }

    /// Takes a look at a server; one that is not among them is left out. Returns the conditions that hold from now on, or
    /// no longer.
    pub fn take(&mut self, sample: ServerSample) -> Vec<Fired> {
        let (index, at_ms) = (sample.server, sample.at_ms);
        let Some(server) = self.servers.get_mut(index) else { return Vec::new() };
        server.take(sample);
        let server = &*server;
        self.alerts.iter_mut().filter_map(|alert| alert.check(index, server, at_ms)).collect()
    }

    /// The servers, in the order in which they were named.
    #[must_use]
    pub fn servers(&self) -> &[Watched] {
        &self.servers
    }

    /// The conditions that hold at a server.
    pub fn alerts(&self, server: usize) -> impl Iterator<Item = &str> {
        self.alerts.iter().filter(move |alert| alert.holds(server)).map(Alert::text)
    }

    /// Whether each condition is decided at each server: it holds, or it does not now.
    #[must_use]
    pub fn is_decided(&self) -> bool {
        let servers = || 0..self.servers.len();
        self.servers.iter().all(|server| server.newest.is_some())
            && self.alerts.iter().all(|alert| servers().all(|server| !alert.is_waiting(server)))
    }

    /// All servers together, over the last ten seconds: tokens and counts are added up, shares are taken of the sums.
    #[must_use]
    pub fn together(&self) -> Rates {
        Rates::sum(self.servers.iter().filter(|server| server.is_up()).map(Watched::recent))
    }

    /// The newest look at a server as a line of JSON.
    #[must_use]
    pub fn line(&self, server: usize) -> Option<WatchLine<'_>> {
        let watched = self.servers.get(server)?;
        Some(WatchLine {
            sample: watched.newest.as_ref()?,
            recent: watched.recent(),
            since_start: watched.since_start(),
            alerts: self.alerts(server).collect(),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
