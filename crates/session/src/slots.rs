//! Aligns all answers of a turn: a slot for each place, in which every lane has its token or none.
//!
//! Invariant: every token of every lane is in exactly one slot, in order, and tokens that [`align`] pairs with the
//! run's own answer share its slot. So one place on the screen stands for a token in all lanes.

use draftscope_protocol::{Lane, StopReason, TokenId};

use super::align;
use super::turn::{Answer, Turn};

/// One place of the answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Index in each lane's answer, by [`Lane::index`]; `None` if the lane has no token here.
    pub tokens: [Option<usize>; Lane::ALL.len()],
    /// Whether two lanes differ here. A lane that has not come so far yet does not differ.
    pub differs: bool,
}

impl Turn {
    /// The run's own answer and those of these lanes, aligned.
    #[must_use]
    pub fn slots(&self, beside: &[Lane]) -> Vec<Slot> {
        let own = Lane::Speculative;
        let ids = |lane: Lane| self.answer(lane).tokens.iter().map(|token| token.piece.id).collect::<Vec<TokenId>>();
        let mut slots: Vec<Slot> = (0..self.answer(own).tokens.len()).map(|index| slot_of(own, index)).collect();
        for lane in beside.iter().filter(|lane| **lane != own) {
            slots = merge(&slots, *lane, &align(&ids(own), &ids(*lane)).iter().map(|p| (p.a, p.b)).collect::<Vec<_>>());
        }
        let lanes: Vec<Lane> = beside.iter().copied().chain([own]).collect();
        mark(self, &lanes, &mut slots);
        slots
    }
}

fn slot_of(lane: Lane, index: usize) -> Slot {
    let mut slot = Slot::default();
    slot.tokens[lane.index()] = Some(index);
    slot
}

/// Puts a lane's tokens into slots: with the run's own token if they are paired, else into slots before it that another
/// lane already needed, or new ones.
fn merge(slots: &[Slot], lane: Lane, pairs: &[(Option<usize>, Option<usize>)]) -> Vec<Slot> {
    let own = Lane::Speculative.index();
    let mut merged = Vec::with_capacity(slots.len());
    let (mut at, mut waiting) = (0, Vec::new());
    let mut place = |until: Option<usize>, waiting: &mut Vec<usize>, beside: Option<usize>| {
        let mut waiting = waiting.drain(..);
        while let Some(slot) = slots.get(at).filter(|slot| slot.tokens[own].is_none() || slot.tokens[own] != until) {
            let mut slot = *slot;
            slot.tokens[lane.index()] = waiting.next();
            merged.push(slot);
            at += 1;
        }
        merged.extend(waiting.map(|index| slot_of(lane, index)));
        if let Some(mut slot) = slots.get(at).copied() {
            slot.tokens[lane.index()] = beside;
            merged.push(slot);
            at += 1;
        }
    };
    for (own, other) in pairs {
        match (own, other) {
            (Some(own), other) => place(Some(*own), &mut waiting, *other),
            (None, Some(other)) => waiting.push(*other),
            (None, None) => {}
        }
    }
    place(None, &mut waiting, None);
    merged
}

/// Marks the slots in which lanes differ.
fn mark(turn: &Turn, lanes: &[Lane], slots: &mut [Slot]) {
    let last = |lane: &Lane| slots.iter().rposition(|slot| slot.tokens[lane.index()].is_some());
    let ends: Vec<(Lane, Option<usize>, bool)> =
        lanes.iter().map(|lane| (*lane, last(lane), ended(turn.answer(*lane)))).collect();
    for (index, slot) in slots.iter_mut().enumerate() {
        let ids = ends.iter().filter_map(|(lane, last, ended)| {
            let token = slot.tokens[lane.index()].map(|at| turn.answer(*lane).tokens[at].piece.id);
            // after the newest token of a running lane nothing is known about it
            (token.is_some() || last.is_some_and(|last| index < last || *ended)).then_some(token)
        });
        let ids: Vec<Option<TokenId>> = ids.collect();
        slot.differs = ids.windows(2).any(|pair| pair[0] != pair[1]);
    }
}

fn ended(answer: &Answer) -> bool {
    answer.finished == Some(StopReason::Eos)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Provenance, Token};
    use super::*;
    use draftscope_protocol::Piece;

    fn turn(answers: [&str; 3]) -> Turn {
        let mut turn = Turn::new(1);
        for (lane, text) in Lane::ALL.iter().zip(answers) {
            let tokens = text.bytes().enumerate().map(|(position, byte)| Token {
                is_thought: false,
                piece: Piece::new(TokenId(byte.into()), vec![byte]),
                provenance: Provenance::Plain,
                round: 0,
                position,
                instead: None,
            });
            let mut answer = Answer::default();
            (answer.tokens, answer.finished) = (tokens.collect(), Some(StopReason::Eos));
            turn.answers[lane.index()] = answer.into();
        }
        turn
    }

    fn drawn(answers: [&str; 3], lanes: &[Lane]) -> String {
        let sign = |lane: usize, at: Option<usize>| at.map_or('_', |i| char::from(answers[lane].as_bytes()[i]));
        let slots = turn(answers).slots(lanes);
        let slot = |slot: &Slot| {
            let lanes: String = (0..3).map(|lane| sign(lane, slot.tokens[lane])).collect();
            if slot.differs { format!("{lanes}!") } else { lanes }
        };
        slots.iter().map(slot).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn lanes_share_the_slots_of_equal_tokens() {
        assert_eq!(drawn(["abc", "abc", ""], &[Lane::Plain]), "aa_ bb_ cc_");
        assert_eq!(drawn(["abcdef", "abXYdef", ""], &[Lane::Plain]), "aa_ bb_ cX_! _Y_! dd_ ee_ ff_");
        assert_eq!(drawn(["abd", "abXd", "abYZd"], &[Lane::Plain, Lane::Rival]), "aaa bbb dXY! _dZ! __d!");
        let both = drawn(["abcd", "abXcd", "abXYcd"], &[Lane::Plain, Lane::Rival]);
        assert_eq!(both, "aaa bbb cXX! _cY! __c! ddd");
    }

    #[test]
    fn what_a_lane_has_not_written_yet_is_no_difference() {
        let mut turn = turn(["abcd", "ab", ""]);
        assert!(turn.slots(&[Lane::Plain])[2].differs, "plain decoding ended there");
        let mut plain = turn.answer(Lane::Plain).clone();
        plain.finished = Some(StopReason::Measured);
        turn.answers[Lane::Plain.index()] = plain.into();
        assert!(turn.slots(&[Lane::Plain]).iter().all(|slot| !slot.differs));
    }

    proptest! {
        #[test]
        fn every_token_stands_in_one_slot_in_order(a in "[ab]{0,12}", b in "[ab]{0,12}", c in "[ab]{0,12}") {
            let turn = turn([&a, &b, &c]);
            let slots = turn.slots(&[Lane::Plain, Lane::Rival]);
            for (lane, text) in Lane::ALL.iter().zip([&a, &b, &c]) {
                let all: Vec<usize> = slots.iter().filter_map(|slot| slot.tokens[lane.index()]).collect();
                prop_assert_eq!(all, (0..text.len()).collect::<Vec<_>>(), "{} {} {} {}", lane.name(), a, b, c);
            }
            let same = slots.iter().filter(|slot| !slot.differs);
            for slot in same {
                // a lane that wrote nothing does not take part
                let took_part = [&a, &b, &c].into_iter().zip(slot.tokens).filter(|(text, _)| !text.is_empty());
                let bytes = took_part.map(|(text, at)| at.map(|at| text.as_bytes()[at]));
                let bytes: Vec<_> = bytes.collect();
                prop_assert!(bytes.windows(2).all(|pair| pair[0] == pair[1]));
            }
        }
    }
}
