//! Servers that others use, from what they say of themselves again and again.
//!
//! Invariant: a rate is a difference of counters ÷ the time between two looks at the same run of a server, or none. A
//! server that does not answer, or was started anew, has no rates of the time before.

mod alert;
mod live;
mod positions;
mod rates;

use std::collections::VecDeque;

use serde::Serialize;

use draftscope_protocol::{Counters, ServerSample, SlotState};

pub use alert::{Alert, Fired};
pub use positions::Share;
pub use rates::{Latency, Rates};

use live::Live;

/// Looks that are kept: ten minutes at one a second.
const KEPT: usize = 600;

/// Time over which a row's rates are taken, in milliseconds.
const WINDOW_MS: u64 = 10_000;

/// All servers.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    servers: Vec<Watched>,
    alerts: Vec<Alert>,
}

/// A server, and what it was in the last minutes.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// The newest look; none before the first.
    pub newest: Option<ServerSample>,
    looks: VecDeque<Look>,
    /// What happened up to each look, oldest first: milliseconds, and rates since the look before, empty while the server
    /// did not answer.
    pub history: VecDeque<(u64, Rates)>,
    live: Live,
}

/// A look at a server that answered.
#[derive(Clone, Debug)]
struct Look {
    ms: u64,
    counters: Counters,
    /// Tokens of answers so far, those of answers that are not over included.
    tokens: Option<u64>,
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

impl Watched {
    fn take(&mut self, sample: ServerSample) {
        let is_other = |before: &ServerSample| {
            (!sample.engine.is_empty() && before.engine != sample.engine && !before.engine.is_empty())
                || (!sample.model.is_empty() && before.model != sample.model && !before.model.is_empty())
        };
        let counters = sample.counters.clone().unwrap_or_default();
        let has_fallen = self.looks.back().is_some_and(|look| counters.fell_since(&look.counters));
        if has_fallen || self.newest.as_ref().is_some_and(is_other) {
            // another run of the server: nothing of the one before is said of it
            (self.looks, self.history, self.live) = Default::default();
        }
        if sample.counters.is_some() || !sample.slots.is_empty() {
            self.live.note_time(sample.at_ms);
            let tokens = self.live.tokens(&counters, &sample.slots);
            let look = Look { ms: sample.at_ms, counters, tokens };
            if let Some(before) = self.looks.back() {
                self.history.push_back((look.ms, look.since(before)));
            }
            self.looks.push_back(look);
        } else {
            self.looks.clear();
            self.live = Live::default();
            if !self.history.is_empty() {
                self.history.push_back((sample.at_ms, Rates::default()));
            }
        }
        while self.looks.len() > KEPT {
            self.looks.pop_front();
        }
        while self.history.len() > KEPT {
            self.history.pop_front();
        }
        self.newest = Some(sample);
    }

    /// Over the last ten seconds, or as long as it has answered.
    #[must_use]
    pub fn recent(&self) -> Rates {
        let Some(now) = self.looks.back() else { return Rates::default() };
        let within = |look: &&Look| now.ms.saturating_sub(look.ms) <= WINDOW_MS;
        // the look before is taken where the next one is later than that
        let then = self.looks.iter().find(within).filter(|then| then.ms < now.ms);
        let then = then.or_else(|| self.looks.len().checked_sub(2).and_then(|at| self.looks.get(at)));
        then.map_or_else(|| Rates::gauges(&now.counters), |then| now.since(then))
    }

    /// Since the server started.
    #[must_use]
    pub fn since_start(&self) -> Rates {
        self.looks.back().map_or_else(Rates::default, |now| Rates::of(&now.counters, None, 0))
    }

    /// Its slots, if it shows them.
    #[must_use]
    pub fn slots(&self) -> &[SlotState] {
        self.newest.as_ref().map_or(&[], |sample| sample.slots.as_slice())
    }

    /// Tokens per second of a slot's request since the look before; none if that was another request.
    #[must_use]
    pub fn slot_speed(&self, slot: &SlotState) -> Option<f64> {
        self.live.speed(slot)
    }

    /// Whether it answered the newest look.
    #[must_use]
    pub fn is_up(&self) -> bool {
        !self.looks.is_empty()
    }
}

impl Look {
    fn since(&self, before: &Self) -> Rates {
        let tokens = self.tokens.zip(before.tokens).map(|(now, then)| now.saturating_sub(then));
        Rates::of(&self.counters.since(&before.counters), tokens, self.ms.saturating_sub(before.ms))
    }
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
