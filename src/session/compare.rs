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

    /// Places at which the own answer and the plain one do not hold the same token: those that both wrote, and
    /// those behind the end of one that ended by itself. None while one of them has written nothing.
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
        let differing = fast.tokens.iter().zip(&plain.tokens).filter(|(a, b)| a.piece.id != b.piece.id).count();
        let (shorter, longer) = if fast.tokens.len() < plain.tokens.len() { (fast, plain) } else { (plain, fast) };
        let behind = if ended(shorter) { longer.tokens.len() - shorter.tokens.len() } else { 0 };
        Some(differing + behind)
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

#[cfg(test)]
mod tests {
    use super::super::fixture::first_turn;
    use super::super::tests::fold;
    use super::*;
    use crate::protocol::EventKind;

    #[test]
    fn only_places_that_both_were_to_write_can_differ() {
        let turn = |reason| {
            let mut script = first_turn();
            for event in &mut script.events {
                if let EventKind::Finished { reason: told, .. } = &mut event.kind
                    && event.lane == Lane::Plain
                {
                    *told = reason;
                }
            }
            fold(&script.events).turns()[0].clone()
        };
        let counts = |turn: &Turn| [Lane::Speculative, Lane::Plain].map(|lane| turn.answer(lane).tokens.len());
        let measured = turn(StopReason::Measured);
        let [own, plain] = counts(&measured);
        assert!(own > plain && measured.agreement().unwrap().divergence.is_none());
        assert_eq!(measured.differing_tokens(), Some(0), "plain decoding was asked for no more");
        assert_eq!(turn(StopReason::Eos).differing_tokens(), Some(own - plain), "its answer ends there");
    }
}
