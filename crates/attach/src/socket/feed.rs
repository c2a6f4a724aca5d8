//! Joins what a plugin sends to the steps of an answer.
//!
//! Level 1 stays the truth about the text: a round of the plugin is used only where its tokens are those of the answer, and
//! no text of the plugin is added to it. So a plugin that lies, lags or is gone costs detail, never a token.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::step::Step;
use draftscope_protocol::{Piece, Prediction, VerifyRule};

use super::address::Address;
use super::read;
use super::round::Round;
use super::store::Store;

/// After so many steps without a round none is waited for, until one is found again.
const MAX_MISSES: u32 = 3;

/// How many rounds of a request may be passed over to find the one of a step.
const REACH: usize = 64;

/// A plugin's rounds for the answers of a run.
#[derive(Debug)]
pub struct Feed {
    store: Arc<Store>,
    /// The request of the answer under way, once one fits.
    request: Option<String>,
    misses: u32,
    /// How long a step waits for its round.
    round_wait: Duration,
}

/// Reads a plugin; a panic becomes a sentence, and nobody waits for the plugin any longer.
fn follow(store: &Store, read: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(read)).is_err() {
        store.disconnected("reading it stopped on an internal error; please report it");
    }
}

impl Feed {
    /// Reads the plugin at `address` from now on, also after it was gone. A step of an answer waits for its round so
    /// long.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub fn start(address: Address, round_wait: Duration) -> io::Result<Self> {
        let store = Arc::new(Store::default());
        let shared = Arc::clone(&store);
        let follow = move || follow(&shared, || read::follow(&address, &shared));
        thread::Builder::new().name("attach-plugin".into()).spawn(follow)?;
        Ok(Self { store, request: None, misses: 0, round_wait })
    }

    /// An answer begins: what was reported before is of other requests.
    pub fn begin(&mut self) {
        self.request = None;
        self.misses = 0;
        self.store.lock().requests.clear();
    }

    /// Sentences for the user since the last call.
    #[must_use]
    pub fn notices(&self) -> Vec<String> {
        self.store.lock().take_notices()
    }

    /// The rule by which the engine judges drafts, once the plugin named it.
    #[must_use]
    pub fn rule(&self) -> Option<VerifyRule> {
        self.store.lock().rule()
    }

    /// The prediction that an answer's first token was picked from, if the plugin reported it.
    pub fn first(&mut self, token: &Piece) -> Option<Prediction> {
        let tokens = std::slice::from_ref(token);
        let found = self.find(tokens)?;
        found.into_iter().next()?.scored?.rows.into_iter().next()
    }

    /// The step with what the plugin reported of it; several steps where the server had sent them together, and the step
    /// as it was if nothing fits.
    pub fn take(&mut self, step: Step) -> Vec<Step> {
        match self.find(&step.tokens) {
            Some(rounds) => split(step, rounds),
            None => vec![step],
        }
    }

    /// The rounds that committed these tokens, waiting for them if they may still come.
    fn find(&mut self, tokens: &[Piece]) -> Option<Vec<Round>> {
        if tokens.is_empty() {
            return None;
        }
        loop {
            let seen = {
                let mut state = self.store.lock();
                let found = search(&mut state.requests, &mut self.request, tokens);
                if found.is_some() {
                    self.misses = 0;
                    return found;
                }
                if !state.is_connected() || self.misses >= MAX_MISSES {
                    return None;
                }
                state.arrived()
            };
            if !self.store.wait(seen, self.round_wait) {
                self.misses += 1;
                return None;
            }
        }
    }
}

/// Finds the rounds that committed `tokens` and removes them, and those before them, from the request's queue. A request is
/// chosen once it is the only one that fits.
fn search(
    requests: &mut VecDeque<super::store::Waiting>,
    chosen: &mut Option<String>,
    tokens: &[Piece],
) -> Option<Vec<Round>> {
    let is_candidate = |request: &str| chosen.as_deref().is_none_or(|chosen| chosen == request);
    let mut fits = requests.iter().enumerate().filter(|(_, waiting)| is_candidate(&waiting.request));
    let places = fits.by_ref().filter_map(|(at, waiting)| Some((at, place(&waiting.rounds, tokens)?)));
    let places: Vec<_> = places.take(2).collect();
    let [(at, (from, to))] = places[..] else { return None };
    let waiting = requests.get_mut(at)?;
    *chosen = Some(waiting.request.clone());
    waiting.rounds.drain(..from);
    Some(waiting.rounds.drain(..to - from).collect())
}

/// The first run of rounds that committed just these tokens; the last of them may have been cut.
fn place(rounds: &VecDeque<Round>, tokens: &[Piece]) -> Option<(usize, usize)> {
    (0..rounds.len().min(REACH)).find_map(|from| {
        let mut rest = tokens;
        for (to, round) in rounds.iter().enumerate().skip(from) {
            let committed = &round.committed;
            let len = committed.len().min(rest.len());
            if !rest[..len].iter().zip(committed).all(|(own, theirs)| is_same(own, theirs)) {
                return None;
            }
            rest = &rest[len..];
            if rest.is_empty() {
                return Some((from, to + 1));
            }
        }
        None
    })
}

/// Whether a token of the answer may be this one: a server may leave out ids.
fn is_same(own: &Piece, theirs: &Piece) -> bool {
    match own.id.is_unknown() {
        true => own.bytes.is_empty() || theirs.bytes.is_empty() || own.bytes == theirs.bytes,
        false => own.id == theirs.id,
    }
}

/// One step for each round. All but the last end as long before the step as the plugin reported them before its last round.
fn split(step: Step, rounds: Vec<Round>) -> Vec<Step> {
    let last_at = rounds.last().map_or(0, |round| round.at_us);
    let theirs: Vec<&Piece> = rounds.iter().flat_map(|round| &round.committed).collect();
    let mut tokens = named(step.tokens, &theirs).into_iter();
    rounds
        .into_iter()
        .map(|round| Step {
            drafted: round.drafted(),
            accepted: round.accepted(),
            tokens: tokens.by_ref().take(round.committed.len()).collect(),
            clock_us: step.clock_us.saturating_sub(last_at.saturating_sub(round.at_us)),
            detail: Some(Box::new(round)),
            ..Step::default()
        })
        .collect()
}

/// The tokens with what the server left out: ids, names of control tokens, which are no text, and which part of the text
/// each token is, where the plugin's parts are the same text.
fn named(own: Vec<Piece>, theirs: &[&Piece]) -> Vec<Piece> {
    let theirs = &theirs[..theirs.len().min(own.len())];
    let is_same_text = own.iter().flat_map(Piece::text_bytes).eq(theirs.iter().flat_map(|piece| piece.text_bytes()));
    let name = |(own, theirs): (Piece, &&Piece)| {
        let id = if own.id.is_unknown() { theirs.id } else { own.id };
        let is_control = theirs.special && own.bytes.is_empty();
        Piece { id, ..if is_same_text || is_control { (*theirs).clone() } else { own } }
    };
    own.into_iter().zip(theirs).map(name).collect()
}

#[cfg(test)]
mod tests;
