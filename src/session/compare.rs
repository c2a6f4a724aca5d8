//! Answers of one turn against each other: how long they are the same.
//!
//! Invariant: nothing is compared across turns; without a lane beside there is no agreement. Why two answers part is not
//! explained here.

use serde::Serialize;

use crate::protocol::{Lane, Piece, StopReason};

use super::{Answer, Turn};

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

impl Turn {
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
