//! One server of a fleet: its newest look and its history.

use std::collections::VecDeque;

use draftscope_protocol::{Counters, ServerSample, SlotState};

use super::live::Live;
use super::rates::Rates;

/// Looks that are kept: ten minutes at one a second.
pub(super) const KEPT: usize = 600;

/// Time over which a row's rates are taken, in milliseconds.
const WINDOW_MS: u64 = 10_000;

/// A server, and what it was in the last minutes.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// The newest look; none before the first.
    pub newest: Option<ServerSample>,
    looks: VecDeque<Look>,
    /// What happened up to each look, oldest first: milliseconds, and rates since the look before, empty while the server
    /// did not answer.
    pub history: VecDeque<(u64, Rates)>,
    pub(super) live: Live,
}

/// A look at a server that answered.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub(super) ms: u64,
    pub(super) counters: Counters,
    /// Tokens of answers so far, those of answers that are not over included.
    pub(super) tokens: Option<u64>,
}

impl Watched {
    pub(super) fn take(&mut self, sample: ServerSample) {
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
    pub(super) fn since(&self, before: &Self) -> Rates {
        let tokens = self.tokens.zip(before.tokens).map(|(now, then)| now.saturating_sub(then));
        Rates::of(&self.counters.since(&before.counters), tokens, self.ms.saturating_sub(before.ms))
    }
}
