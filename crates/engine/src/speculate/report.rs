//! Parts of a round's events: drafts and distributions, and the stopwatch of its phases.
//!
//! Invariant: no figure includes the time of a pause. The engine fills in the bytes of tokens later.

use std::time::{Duration, Instant};

use draftscope_protocol::distribution::Distribution;
use draftscope_protocol::verify::Draft;
use draftscope_protocol::{Candidate, Drafted, EventKind, Piece, Prediction, TokenId};

/// Candidates per position in an event; the total probability of all others is its tail.
pub const TOP_N: usize = 32;

/// Measures a round in laps, without pauses.
pub(super) struct Stopwatch {
    started: Instant,
    mark: Instant,
    paused: Duration,
}

impl Stopwatch {
    pub(super) fn start() -> Self {
        let now = Instant::now();
        Self { started: now, mark: now, paused: Duration::ZERO }
    }

    /// Microseconds since the last lap or pause; a new lap begins.
    pub(super) fn lap(&mut self) -> u64 {
        let now = Instant::now();
        let lap = now - self.mark;
        self.mark = now;
        micros(lap)
    }

    /// Excludes the time of a pause; a new lap begins.
    pub(super) fn exclude(&mut self, paused: Duration) {
        self.paused += paused;
        self.mark = Instant::now();
    }

    pub(super) fn total(&self) -> Duration {
        self.started.elapsed().saturating_sub(self.paused)
    }
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A piece without bytes: the engine fills them in.
pub(super) fn bare(id: TokenId) -> Piece {
    Piece::new(id, Vec::new())
}

pub(super) fn prediction(p: &Distribution) -> Prediction {
    let (top, unlisted) = p.top(TOP_N);
    let top = top.into_iter().map(|(id, prob)| Candidate { piece: bare(id), prob }).collect();
    Prediction { top, tail: unlisted }
}

/// A draft without the bytes of its token.
pub(super) fn drafted(round: u32, index: usize, draft: &Draft, took_us: u64) -> EventKind {
    let top = draft.q.as_ref().map(prediction).unwrap_or_default();
    EventKind::Drafted(Drafted { round, took_us, ..draft.event(index, top) })
}

pub(super) fn drafter_failed(error: &dyn std::fmt::Display) -> String {
    format!("the drafter failed and is switched off; decoding continues without drafts: {error}")
}
