//! Compares the answers of one turn: how many tokens they share, and who is ahead.
//!
//! Invariant: turns are not compared with each other; without a second lane there is no agreement. Why two answers
//! differ is explained elsewhere.

use serde::Serialize;

use draftscope_protocol::{Lane, Piece, StopReason};

use super::turn::{Answer, Turn};

/// How far the two answers of a turn agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Leading tokens that are equal, the first token included.
    pub identical: usize,
    /// The first difference.
    pub divergence: Option<Divergence>,
    /// Whether both answers have ended and the run's own is the same to its last token.
    pub is_final: bool,
}

/// The first difference between two answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Divergence {
    /// Index in both answers.
    pub index: usize,
    /// The speculative lane's token; `None` if that answer had ended.
    pub speculative: Option<Piece>,
    /// The other lane's token; `None` if that answer had ended.
    #[serde(rename = "plain")]
    pub beside: Option<Piece>,
}

/// How many tokens each lane had written after the same measured time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Race {
    /// That time in microseconds: the smallest of the lanes' clocks; if all have ended, that of the first to end.
    pub at_us: u64,
    /// Tokens that each had written by then, by [`Lane::index`].
    pub written: [usize; Lane::ALL.len()],
}

impl Turn {
    /// The race of the lanes, each clock scaled to [`Turn::decode_us`]; `None` while a lane has no round.
    #[must_use]
    pub fn race(&self, lanes: &[Lane]) -> Option<Race> {
        let clock = |lane: &Lane| {
            let own = self.answer(*lane).rounds.iter().rev().find(|r| r.is_complete())?.clock_us();
            Some((*lane, own, self.decode_us(*lane)))
        };
        let clocks: Vec<(Lane, u64, u64)> = lanes.iter().map(clock).collect::<Option<_>>()?;
        let at_us = clocks.iter().map(|(.., us)| *us).min()?;
        let mut written = [0; Lane::ALL.len()];
        for (lane, own, us) in clocks {
            let share = if us > at_us { at_us as f64 / us as f64 } else { 1.0 };
            written[lane.index()] = self.answer(lane).written_by((own as f64 * share).round() as u64);
        }
        Some(Race { at_us, written })
    }

    /// Places at which the run's own answer and the plain one differ: those that both wrote, and those after the end of
    /// an answer that ended by itself. `None` while one of them is empty.
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
        let differing = fast.tokens.iter().zip(&plain.tokens).filter(|(a, b)| !a.piece.is_same(&b.piece)).count();
        let (shorter, longer) = if fast.tokens.len() < plain.tokens.len() { (fast, plain) } else { (plain, fast) };
        let behind = if ended(shorter) { longer.tokens.len() - shorter.tokens.len() } else { 0 };
        Some(differing + behind)
    }

    /// How far the plain lane agrees; `None` while one of the two is empty.
    #[must_use]
    pub fn agreement(&self) -> Option<Agreement> {
        self.agreement_with(Lane::Plain)
    }

    /// The same for any other lane.
    #[must_use]
    pub fn agreement_with(&self, lane: Lane) -> Option<Agreement> {
        let (fast, plain) = (self.answer(Lane::Speculative), self.answer(lane));
        if fast.tokens.is_empty() || plain.tokens.is_empty() {
            return None;
        }
        let pairs = fast.tokens.iter().zip(&plain.tokens);
        let identical = pairs.take_while(|(a, b)| a.piece.is_same(&b.piece)).count();
        let piece = |answer: &Answer| answer.tokens.get(identical).map(|t| t.piece.clone());
        let (a, b) = (piece(fast), piece(plain));
        let differs = match (&a, &b) {
            (Some(_), Some(_)) => true,
            (None, Some(_)) => ended(fast),
            (Some(_), None) => ended(plain),
            (None, None) => false,
        };
        let is_over = self.is_whole(lane) && self.answer(Lane::Speculative).finished.is_some();
        Some(Agreement {
            identical,
            is_final: is_over && identical == fast.tokens.len(),
            divergence: differs.then_some(Divergence { index: identical, speculative: a, beside: b }),
        })
    }
}

impl Answer {
    /// Tokens written by this time of the lane's clock.
    fn written_by(&self, at_us: u64) -> usize {
        let rounds = self.rounds.partition_point(|round| round.is_complete() && round.clock_us() <= at_us);
        let last = rounds.checked_sub(1).map(|last| &self.rounds[last]);
        let before = self.rounds.first().map_or(self.tokens.len(), |round| round.first_token);
        last.map_or(before, |round| round.first_token + round.committed().len()).min(self.tokens.len())
    }
}

/// Whether an answer ended by itself, so that its length means something.
fn ended(answer: &Answer) -> bool {
    matches!(answer.finished, Some(StopReason::Eos))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::first_turn;
    use super::*;
    use crate::fixture::fold;
    use draftscope_protocol::EventKind;

    #[test]
    fn a_race_is_read_on_both_clocks() {
        let turn = fold(&first_turn().events).turns()[0].clone();
        let lanes = [Lane::Plain, Lane::Speculative];
        let race = turn.race(&lanes).unwrap();
        let clock = |lane| turn.answer(lane).rounds.last().unwrap().clock_us();
        assert_eq!(race.at_us, clock(Lane::Plain).min(clock(Lane::Speculative)));
        for lane in lanes {
            let by_then = turn.answer(lane).rounds.iter().filter(|round| round.clock_us() <= race.at_us);
            assert_eq!(race.written[lane.index()], 1 + by_then.map(|r| r.committed().len()).sum::<usize>());
        }
        assert!(race.written[0] > race.written[1], "{race:?}");
        assert_eq!(turn.race(&[Lane::Speculative, Lane::Rival]), None, "nobody raced");
    }

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
