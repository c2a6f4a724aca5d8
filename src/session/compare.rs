//! Lanes of one turn against each other: how much faster, and how long the same.
//!
//! Invariant: nothing is compared across turns, and nothing is estimated; without a measured lane
//! beside there is no speedup and no agreement. Why two answers part is not explained here.

use serde::Serialize;

use crate::protocol::{Lane, Piece, StopReason};

use super::{Answer, LaneStats, Session, Turn};

/// How far the two answers of a turn are the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Leading tokens that are equal, the first token included.
    pub identical: usize,
    /// The first difference.
    pub divergence: Option<Divergence>,
}

/// The first place where two answers differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Divergence {
    /// Index in both answers.
    pub index: usize,
    /// The speculative lane's token; none when that answer had ended.
    pub speculative: Option<Piece>,
    /// The token of the lane beside; none when that answer had ended.
    #[serde(rename = "plain")]
    pub beside: Option<Piece>,
}

impl Session {
    /// Speculative ÷ plain tokens per second over the turns in which both were measured.
    #[must_use]
    pub fn speedup(&self) -> Option<f64> {
        self.speedup_over(Lane::Plain)
    }

    /// The run's own ÷ another lane's tokens per second over the turns in which both were measured.
    #[must_use]
    pub fn speedup_over(&self, lane: Lane) -> Option<f64> {
        let (mut own, mut other) = (LaneStats::default(), LaneStats::default());
        for turn in self.turns().iter().filter(|turn| turn.speedup_over(lane).is_some()) {
            own.merge(turn.answer(Lane::Speculative).stats());
            other.merge(turn.answer(lane).stats());
        }
        Some(own.tokens_per_second()? / other.tokens_per_second()?)
    }
}

impl Turn {
    /// Speculative ÷ plain tokens per second, both measured in this turn.
    #[must_use]
    pub fn speedup(&self) -> Option<f64> {
        self.speedup_over(Lane::Plain)
    }

    /// The run's own ÷ another lane's tokens per second, both measured in this turn.
    #[must_use]
    pub fn speedup_over(&self, lane: Lane) -> Option<f64> {
        let own = self.answer(Lane::Speculative).stats().tokens_per_second()?;
        Some(own / self.answer(lane).stats().tokens_per_second()?)
    }

    /// Places at which the own answer and the plain one do not hold the same token; none while one of them
    /// has written nothing.
    #[must_use]
    pub fn differing_tokens(&self) -> Option<usize> {
        self.differing_from(Lane::Plain)
    }

    /// The same against another lane.
    #[must_use]
    pub fn differing_from(&self, lane: Lane) -> Option<usize> {
        let (fast, plain) = (self.answer(Lane::Speculative), self.answer(lane));
        if fast.tokens.is_empty() || plain.tokens.is_empty() {
            return None;
        }
        let same = fast.tokens.iter().zip(&plain.tokens).filter(|(a, b)| a.piece.id == b.piece.id).count();
        Some(fast.tokens.len().max(plain.tokens.len()) - same)
    }

    /// How far the plain lane wrote the same; none while one of them has written nothing.
    #[must_use]
    pub fn agreement(&self) -> Option<Agreement> {
        self.agreement_with(Lane::Plain)
    }

    /// The same for any lane beside.
    #[must_use]
    pub fn agreement_with(&self, lane: Lane) -> Option<Agreement> {
        let (fast, plain) = (self.answer(Lane::Speculative), self.answer(lane));
        if fast.tokens.is_empty() || plain.tokens.is_empty() {
            return None;
        }
        let pairs = fast.tokens.iter().zip(&plain.tokens);
        let identical = pairs.take_while(|(a, b)| a.piece.id == b.piece.id).count();
        let piece = |answer: &Answer| answer.tokens.get(identical).map(|t| t.piece.clone());
        let (a, b) = (piece(fast), piece(plain));
        let differs = match (&a, &b) {
            (Some(_), Some(_)) => true,
            (None, Some(_)) => ended(fast),
            (Some(_), None) => ended(plain),
            (None, None) => false,
        };
        Some(Agreement {
            identical,
            divergence: differs.then_some(Divergence { index: identical, speculative: a, beside: b }),
        })
    }
}

/// Whether an answer ended by itself, so that its length means something.
fn ended(answer: &Answer) -> bool {
    matches!(answer.finished, Some(StopReason::Eos))
}
