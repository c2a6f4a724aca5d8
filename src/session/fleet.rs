//! Servers that others use, from what they say of themselves once a second.
//!
//! Invariant: a rate is a difference of counters ÷ the time between the two looks, or none; a server that was started
//! anew counts from its new start.

use std::collections::VecDeque;

use serde::Serialize;

use crate::protocol::{Counters, ServerSample, SlotState};

/// Looks that are kept: ten minutes at one a second.
const KEPT: usize = 600;

/// Time over which a row's rates are taken, in milliseconds.
const WINDOW_MS: u64 = 10_000;

/// All servers.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    servers: Vec<Watched>,
}

/// A server, and what it was in the last minutes.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// The newest look; none before the first.
    pub newest: Option<ServerSample>,
    /// Looks with counters: milliseconds, and the counters.
    looks: VecDeque<(u64, Counters)>,
    /// Tokens per second and acceptance between looks, oldest first.
    pub history: VecDeque<Rates>,
}

/// What happened between two looks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Time between them in seconds.
    pub seconds: f64,
    /// Tokens of answers per second, all requests together.
    pub tokens_per_second: Option<f64>,
    /// Accepted ÷ drafted.
    pub acceptance_rate: Option<f64>,
    /// 1 + accepted ÷ steps: the target's own token included.
    pub tokens_per_step: Option<f64>,
    /// Accepted at each position ÷ steps with drafts.
    pub accepted_per_pos: Vec<f64>,
}

/// A look with the rates that go with it, for JSON.
#[derive(Serialize)]
pub struct WatchLine<'a> {
    /// The look.
    #[serde(flatten)]
    pub sample: &'a ServerSample,
    /// Over the last ten seconds.
    pub recent: Rates,
}

impl Rates {
    fn of(news: &Counters, ms: u64) -> Self {
        let seconds = ms as f64 / 1e3;
        let ratio = |part: Option<u64>, whole: Option<u64>| {
            part.zip(whole).filter(|(_, whole)| *whole > 0).map(|(part, whole)| part as f64 / whole as f64)
        };
        let steps = news.steps.unwrap_or(0);
        let shares = news.accepted_per_pos.iter().map(|accepted| *accepted as f64 / steps as f64);
        Self {
            seconds,
            tokens_per_second: news.generated.filter(|_| ms > 0).map(|tokens| tokens as f64 / seconds),
            // gauges stand in where a server counts nothing
            acceptance_rate: ratio(news.accepted, news.drafted).or(news.rate),
            tokens_per_step: ratio(news.accepted, news.steps).map(|mean| 1.0 + mean).or(news.mean_length),
            accepted_per_pos: if steps > 0 { shares.collect() } else { Vec::new() },
        }
    }
}

impl Watched {
    fn take(&mut self, sample: ServerSample) {
        if let Some(counters) = &sample.counters {
            if let Some((before_ms, before)) = self.looks.back() {
                let rates = Rates::of(&counters.since(before), sample.at_ms.saturating_sub(*before_ms));
                self.history.push_back(rates);
            }
            self.looks.push_back((sample.at_ms, counters.clone()));
        }
        while self.looks.len() > KEPT {
            self.looks.pop_front();
        }
        while self.history.len() > KEPT {
            self.history.pop_front();
        }
        self.newest = Some(sample);
    }

    /// Over the last ten seconds, or as long as it is watched.
    #[must_use]
    pub fn recent(&self) -> Rates {
        let Some((now_ms, now)) = self.looks.back() else { return Rates::default() };
        let within = |(ms, _): &&(u64, Counters)| now_ms.saturating_sub(*ms) <= WINDOW_MS;
        let Some((then_ms, then)) = self.looks.iter().find(within).filter(|(ms, _)| ms < now_ms) else {
            return Rates { acceptance_rate: now.rate, tokens_per_step: now.mean_length, ..Rates::default() };
        };
        Rates::of(&now.since(then), now_ms - then_ms)
    }

    /// Since the server started.
    #[must_use]
    pub fn since_start(&self) -> Rates {
        self.looks.back().map_or_else(Rates::default, |(_, now)| Rates { tokens_per_second: None, ..Rates::of(now, 0) })
    }

    /// Its slots, if it shows them.
    #[must_use]
    pub fn slots(&self) -> &[SlotState] {
        self.newest.as_ref().map_or(&[], |sample| sample.slots.as_slice())
    }
}

impl Fleet {
    /// So many servers, of which nothing is known yet.
    #[must_use]
    pub fn new(servers: usize) -> Self {
        Self { servers: vec![Watched::default(); servers] }
    }

    /// Takes a look at a server; one that is not among them is left out.
    pub fn take(&mut self, sample: ServerSample) {
        if let Some(server) = self.servers.get_mut(sample.server) {
            server.take(sample);
        }
    }

    /// The servers, in the order in which they were named.
    #[must_use]
    pub fn servers(&self) -> &[Watched] {
        &self.servers
    }

    /// The newest look at a server as a line of JSON.
    #[must_use]
    pub fn line(&self, server: usize) -> Option<WatchLine<'_>> {
        let watched = self.servers.get(server)?;
        Some(WatchLine { sample: watched.newest.as_ref()?, recent: watched.recent() })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A look at a server that has answered for so many seconds: 40 tokens and 10 steps of 4 drafts a second.
    pub(crate) fn sample(server: usize, second: u64) -> ServerSample {
        let counters = Counters {
            steps: Some(100 + 10 * second),
            drafted: Some(400 + 40 * second),
            accepted: Some(200 + 30 * second),
            accepted_per_pos: vec![90 + 10 * second, 60 + 9 * second, 30 + 7 * second, 20 + 4 * second],
            generated: Some(300 + 40 * second),
            running: Some(2),
            waiting: Some(1),
            ..Counters::default()
        };
        ServerSample {
            server,
            host: format!("10.0.0.{server}:8080"),
            at_ms: second * 1000,
            engine: "llama-server".to_owned(),
            model: "SmolLM2-135M-Instruct".to_owned(),
            counters: Some(counters),
            slots: vec![
                SlotState { id: 0, is_busy: true, speculates: Some(true), decoded: Some(41), context: Some(2048) },
                SlotState { id: 1, context: Some(2048), ..SlotState::default() },
            ],
            problem: None,
        }
    }

    #[test]
    fn rates_are_differences_over_ten_seconds() {
        let mut fleet = Fleet::new(1);
        assert_eq!(fleet.servers()[0].recent(), Rates::default());
        (0..30).for_each(|second| fleet.take(sample(0, second)));
        let recent = fleet.servers()[0].recent();
        assert_eq!((recent.seconds, recent.tokens_per_second), (10.0, Some(40.0)));
        assert_eq!((recent.acceptance_rate, recent.tokens_per_step), (Some(0.75), Some(4.0)));
        assert_eq!(recent.accepted_per_pos, [1.0, 0.9, 0.7, 0.4]);
        assert_eq!(fleet.servers()[0].history.len(), 29);
        assert!(fleet.servers()[0].since_start().acceptance_rate.is_some_and(|rate| rate < 0.75));
    }

    #[test]
    fn a_server_that_was_started_anew_counts_from_its_start() {
        let mut fleet = Fleet::new(1);
        fleet.take(sample(0, 20));
        fleet.take(ServerSample { at_ms: 21_000, ..sample(0, 0) });
        let recent = fleet.servers()[0].recent();
        assert_eq!(recent.acceptance_rate, Some(0.5));
        let silent = ServerSample { counters: None, problem: Some("no answer".to_owned()), ..sample(0, 22) };
        fleet.take(silent);
        assert_eq!(fleet.servers()[0].recent(), recent, "what was known stays");
        fleet.take(sample(7, 1)); // no such server
    }
}
