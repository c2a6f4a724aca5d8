//! The place of each token of a comparison: the same row and column in every lane.
//!
//! Invariant: a place is as wide as the widest of the lanes' tokens there, no row is wider than requested, and a lane
//! without a token leaves its place empty. Discarded drafts have no place.

use std::cell::RefCell;
use std::rc::Rc;

use unicode_width::UnicodeWidthStr;

use crate::look::fate::DEPARTED;
use draftscope_protocol::{Lane, StopReason};
use draftscope_session::text::{self, Joiner};
use draftscope_session::{Slot, Turn};

/// The newest layout. Most frames need it again; laying out a long answer takes time.
#[derive(Default)]
pub(crate) struct AlignedCache(RefCell<Option<(Key, Rc<Aligned>)>>);

/// What a layout depends on. Within a run a turn's tokens are only ever added to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::view) struct Key {
    pub(in crate::view) timeline: u64,
    pub(in crate::view) run: u64,
    /// Index of the turn.
    pub(in crate::view) turn: usize,
    pub(in crate::view) lanes: Vec<Lane>,
    pub(in crate::view) width: u16,
}

/// Answers of a turn, laid out.
pub(in crate::view) struct Aligned {
    /// How far each lane had come: its tokens, and how it ended.
    of: [(usize, Option<StopReason>); Lane::ALL.len()],
    pub(in crate::view) slots: Vec<Slot>,
    pub(in crate::view) placed: Vec<Placed>,
}

impl AlignedCache {
    /// The layout of a turn; computed if it is not the newest one.
    pub(in crate::view) fn lay_out(&self, turn: &Turn, key: Key) -> Rc<Aligned> {
        let of = std::array::from_fn(|lane| {
            let answer = turn.answer(Lane::ALL[lane]);
            (answer.tokens.len(), answer.finished)
        });
        let mut kept = self.0.borrow_mut();
        if let Some((_, laid)) = kept.as_ref().filter(|(its, laid)| *its == key && laid.of == of) {
            return laid.clone();
        }
        let slots = turn.slots(&key.lanes);
        let placed = place(turn, &slots, key.width);
        let laid = Rc::new(Aligned { of, slots, placed });
        *kept = Some((key, laid.clone()));
        laid
    }
}

impl Aligned {
    /// Rows of the layout.
    pub(in crate::view) fn rows(&self) -> usize {
        self.placed.last().map_or(0, |last| last.row + 1)
    }

    /// The row on which token `index` of a lane stands; of one that is not there yet, the last one.
    pub(in crate::view) fn row_of(&self, lane: Lane, index: usize) -> usize {
        let newest = |slot: usize| self.slots[..=slot].iter().rev().find_map(|slot| slot.tokens[lane.index()]);
        let at = self.placed.partition_point(|placed| newest(placed.slot).is_none_or(|token| token < index));
        self.placed.get(at).or(self.placed.last()).map_or(0, |placed| placed.row)
    }
}

/// The lanes' tokens in one slot, ready to be drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::view) struct Placed {
    pub(in crate::view) slot: usize,
    pub(in crate::view) row: usize,
    pub(in crate::view) x: u16,
    pub(in crate::view) width: u16,
    /// By [`Lane::index`]; empty if a lane has no token here.
    pub(in crate::view) texts: [String; Lane::ALL.len()],
}

/// Lays the slots out in rows of this width.
pub(in crate::view) fn place(turn: &Turn, slots: &[Slot], width: u16) -> Vec<Placed> {
    let width = usize::from(width).max(1);
    let texts = texts(turn, slots);
    let mut placed = Vec::with_capacity(slots.len());
    let (mut row, mut used, mut at) = (0, 0, 0);
    while at < texts.len() {
        let end = word_end(&texts, at);
        let needed: usize = texts[at..end].iter().map(widest).sum();
        if used > 0 && used + needed > width {
            (row, used) = (row + 1, 0);
        }
        for (slot, own) in texts.iter().enumerate().take(end).skip(at) {
            let mut own = own.clone();
            if used == 0 && row > 0 && begins_with_space(&own) {
                own.iter_mut().for_each(|text| *text = text.strip_prefix(' ').unwrap_or(text).to_owned());
            }
            let wide = widest(&own).min(width);
            if used + wide > width {
                (row, used) = (row + 1, 0);
            }
            let ends_line = own.iter().any(|text| text.contains('⏎'));
            placed.push(Placed { slot, row, x: used as u16, width: wide as u16, texts: own });
            used += wide;
            if ends_line {
                (row, used) = (row + 1, 0);
            }
        }
        at = end;
    }
    placed
}

/// Each lane's text in each slot; a character that spans tokens is in the last of them.
fn texts(turn: &Turn, slots: &[Slot]) -> Vec<[String; Lane::ALL.len()]> {
    let mut joiners: [Joiner; Lane::ALL.len()] = Default::default();
    let mut text = |slot: &Slot, lane: Lane| -> Option<String> {
        let token = turn.answer(lane).tokens.get(slot.tokens[lane.index()]?)?;
        let text = joiners[lane.index()].push(token.piece.text_bytes());
        let shown = if token.piece.special { "■".to_owned() } else { text::one_line(&text).into() };
        Some(if lane != Lane::Plain && token.instead.is_some() { marked(&shown) } else { shown })
    };
    let mut all = |slot: &Slot| {
        let mut texts: [String; Lane::ALL.len()] = Default::default();
        Lane::ALL.iter().for_each(|lane| texts[lane.index()] = text(slot, *lane).unwrap_or_default());
        texts
    };
    slots.iter().map(&mut all).collect()
}

/// A token that the target would not have chosen, with its mark before the word.
fn marked(text: &str) -> String {
    let word = text.trim_start_matches(' ');
    format!("{}{DEPARTED}{word}", &text[..text.len() - word.len()])
}

fn widest(texts: &[String; Lane::ALL.len()]) -> usize {
    texts.iter().map(|text| text.width()).max().unwrap_or(0)
}

fn begins_with_space(texts: &[String; Lane::ALL.len()]) -> bool {
    texts.iter().all(|text| text.is_empty() || text.starts_with(' '))
}

/// Where the word that begins here ends: before the next slot that begins one, or after the end of a line.
fn word_end(texts: &[[String; Lane::ALL.len()]], from: usize) -> usize {
    let ends_line = |texts: &[String; Lane::ALL.len()]| texts.iter().any(|text| text.contains('⏎'));
    let mut end = from + 1;
    while end < texts.len() && !begins_with_space(&texts[end]) && !ends_line(&texts[end - 1]) {
        end += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use draftscope_session::fixture::first_turn;
    use draftscope_session::fixture::fold;

    #[test]
    fn the_same_token_stands_in_the_same_place() {
        let session = fold(&first_turn().events);
        let turn = &session.turns()[0];
        for width in [12, 30, 60] {
            let placed = place(turn, &turn.slots(&[Lane::Plain]), width);
            for p in placed.iter().filter(|p| !p.texts[1].is_empty()) {
                assert_eq!(p.texts[0], p.texts[1], "{p:?}");
            }
            assert!(placed.iter().any(|p| p.row > 0 || width == 60));
        }
    }

    #[test]
    fn a_token_that_the_target_would_not_have_chosen_is_marked() {
        assert_eq!(["", " planet", "ing", "  x"].map(marked), ["≠", " ≠planet", "≠ing", "  ≠x"]);
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets/traces/lessons/rules.dscope.jsonl.zst");
        let recording = draftscope_session::trace::Recording::open(std::path::Path::new(path)).unwrap();
        let events: Vec<_> = recording.reader().unwrap().map(Result::unwrap).collect();
        let session = fold(&events);
        let turn = &session.turns()[0];
        let lanes = [Lane::Plain, Lane::Rival, Lane::Speculative];
        let placed = place(turn, &turn.slots(&lanes), 40);
        let marks = |lane: Lane| placed.iter().filter(|p| p.texts[lane.index()].contains(DEPARTED)).count();
        assert_eq!(marks(Lane::Rival), turn.answer(Lane::Rival).departures().count());
        assert_eq!((marks(Lane::Plain), marks(Lane::Speculative), marks(Lane::Rival) > 0), (0, 0, true));
    }

    proptest! {
        #[test]
        fn places_do_not_overlap(width in 1u16..40) {
            let session = fold(&first_turn().events);
            let turn = &session.turns()[0];
            let placed = place(turn, &turn.slots(&[Lane::Plain]), width);
            for pair in placed.windows(2) {
                let follows = pair[1].row > pair[0].row || pair[1].x >= pair[0].x + pair[0].width;
                prop_assert!(follows, "{:?}", pair);
            }
            prop_assert!(placed.iter().all(|p| p.x + p.width <= width));
        }
    }
}
