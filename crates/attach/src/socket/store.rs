//! What a plugin has sent, between the thread that reads it and the run that uses it.
//!
//! Invariant: bounded whatever is sent: the oldest request, the oldest round and the oldest sentence make room.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use draftscope_protocol::{Header, VerifyRule};

use super::fault::Fault;
use super::round::Round;

/// Most requests that are remembered.
const MAX_REQUESTS: usize = 64;

/// Most rounds of a request that wait.
const MAX_ROUNDS: usize = 1024;

/// Most bytes of all rounds that wait.
const MAX_BYTES: usize = 64 << 20;

/// Most sentences that wait.
const MAX_NOTICES: usize = 8;

/// Rounds of one request that no answer has used yet.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) request: String,
    pub(super) rounds: VecDeque<Round>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) requests: VecDeque<Waiting>,
    /// At least the bytes of all rounds that wait: rounds that were taken are still counted until it is computed anew.
    bytes: usize,
    notices: VecDeque<String>,
    engine: Option<String>,
    rule: Option<VerifyRule>,
    is_connected: bool,
    has_failed: bool,
    was_gone: bool,
    has_fault: bool,
    dropped: u64,
    /// Rounds that have arrived.
    arrived: u64,
}

/// Shared by both threads.
#[derive(Debug, Default)]
pub(super) struct Store {
    state: Mutex<State>,
    news: Condvar,
}

impl Store {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until another round arrives than the first `seen`, at most so long; whether one did.
    pub(super) fn wait(&self, seen: u64, longest: Duration) -> bool {
        let state = self.lock();
        let waits = |state: &mut State| state.arrived == seen && state.is_connected;
        let (state, _) = self.news.wait_timeout_while(state, longest, waits).unwrap_or_else(PoisonError::into_inner);
        state.arrived != seen
    }

    pub(super) fn connected(&self) {
        let mut state = self.lock();
        state.is_connected = true;
        state.requests.clear();
    }

    pub(super) fn disconnected(&self, why: &str) {
        let mut state = self.lock();
        let was_connected = std::mem::take(&mut state.is_connected);
        state.was_gone |= was_connected;
        // rounds that have arrived are still good
        if was_connected || !std::mem::replace(&mut state.has_failed, true) {
            let why: String = why.chars().take(200).collect();
            let sentence = match was_connected {
                true => format!("the engine's plugin is gone ({why}); rounds have less detail until it is back"),
                false => format!("no plugin answers at the socket yet ({why}); rounds have less detail until one does"),
            };
            state.say(sentence);
        }
        self.news.notify_all();
    }

    pub(super) fn header(&self, header: &Header) {
        let name = header.engine.as_ref().map_or(String::new(), |engine| format!("{} {}", engine.name, engine.version));
        let name: String = name.trim().chars().take(80).collect();
        let mut state = self.lock();
        let is_new = state.engine.as_ref() != Some(&name);
        if is_new || std::mem::take(&mut state.was_gone) {
            state.say(format!("the plugin of {name} reports every round: rejected drafts, p and q are shown"));
        }
        state.engine = Some(name);
        state.rule = Some(header.settings.rule);
    }

    pub(super) fn round(&self, request: String, round: Round) {
        let mut state = self.lock();
        state.arrived += 1;
        state.make_room(round.bytes());
        let found = state.requests.iter().position(|waiting| waiting.request == request);
        let mut waiting = found.and_then(|at| state.requests.remove(at)).unwrap_or_default();
        waiting.request = request;
        if waiting.rounds.len() >= MAX_ROUNDS {
            waiting.rounds.pop_front();
        }
        waiting.rounds.push_back(round);
        if state.requests.len() >= MAX_REQUESTS {
            state.requests.pop_front();
        }
        state.requests.push_back(waiting); // the newest last
        self.news.notify_all();
    }

    pub(super) fn dropped(&self, rounds: u64) {
        let mut state = self.lock();
        if rounds > state.dropped {
            let more = rounds - state.dropped;
            state.say(format!("the plugin left out {more} rounds, because they were not read fast enough"));
        }
        state.dropped = rounds;
    }

    pub(super) fn notice(&self, message: String) {
        self.lock().say(message);
    }

    pub(super) fn fault(&self, line: u64, fault: &Fault) {
        let mut state = self.lock();
        if !std::mem::replace(&mut state.has_fault, true) {
            state.say(format!("the plugin's line {line} is wrong ({fault}); such rounds have less detail"));
        }
    }
}

impl State {
    /// Drops the oldest rounds, if a round of so many bytes would be too much.
    fn make_room(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.bytes <= MAX_BYTES {
            return;
        }
        let waiting = self.requests.iter().flat_map(|waiting| &waiting.rounds);
        self.bytes = waiting.map(Round::bytes).sum::<usize>() + bytes;
        // half of the room, so that it is not computed anew for every round
        while self.bytes > MAX_BYTES / 2 {
            let Some(oldest) = self.requests.front_mut() else { return };
            match oldest.rounds.pop_front() {
                Some(round) => self.bytes -= round.bytes(),
                None => drop(self.requests.pop_front()),
            }
        }
    }

    fn say(&mut self, sentence: String) {
        if self.notices.len() >= MAX_NOTICES {
            self.notices.pop_front();
        }
        self.notices.push_back(sentence);
    }

    pub(super) fn take_notices(&mut self) -> Vec<String> {
        self.notices.drain(..).collect()
    }

    /// The rule by which the engine judges drafts, once the plugin named it.
    pub(super) fn rule(&self) -> Option<VerifyRule> {
        self.rule
    }

    pub(super) fn arrived(&self) -> u64 {
        self.arrived
    }

    pub(super) fn is_connected(&self) -> bool {
        self.is_connected
    }
}
