//! Finding text in the answers.
//!
//! Invariant: a hit is a place that can be selected: a round and, if possible, the column of the token in which the
//! text begins. Text that spans several tokens is found too.

use draftscope_protocol::Lane;
use draftscope_session::{Answer, Provenance, Session, Token};

use draftscope_session::round_at::RoundAt;

/// The place of a hit, in the form of a selection.
pub(crate) type SearchHit = (RoundAt, Option<usize>);

/// A place, and the text of its answer from there on.
struct Spot {
    place: SearchHit,
    offset: usize,
}

/// The next hit after (or before) `from`, wrapping around at the end.
pub(crate) fn find(session: &Session, text: &str, from: Option<SearchHit>, forward: bool) -> Option<SearchHit> {
    let found = places(session, text);
    let Some(from) = from else {
        return if forward { found.first().copied() } else { found.last().copied() };
    };
    if forward {
        found.iter().find(|place| key(place) > key(&from)).or(found.first()).copied()
    } else {
        found.iter().rev().find(|place| key(place) < key(&from)).or(found.last()).copied()
    }
}

/// How many hits there are, and which of them, from 1, this is.
pub(crate) fn standing(session: &Session, text: &str, at: Option<SearchHit>) -> (Option<usize>, usize) {
    let found = places(session, text);
    let number = at.and_then(|at| found.iter().position(|place| key(place) == key(&at)));
    (number.map(|index| index + 1), found.len())
}

/// The sort key of places.
fn key(place: &SearchHit) -> (RoundAt, usize) {
    (place.0, place.1.unwrap_or(0))
}

/// All hits, in order.
fn places(session: &Session, text: &str) -> Vec<SearchHit> {
    let wanted = text.to_lowercase();
    if wanted.is_empty() {
        return Vec::new();
    }
    let turns = session.turns().iter().enumerate();
    turns.flat_map(|(turn, t)| hits(t.answer(Lane::Speculative), turn, &wanted)).collect()
}

/// Every place of an answer at which the text begins.
fn hits(answer: &Answer, turn: usize, wanted: &str) -> Vec<SearchHit> {
    let mut text = String::new();
    let mut spots = Vec::new();
    for (index, token) in answer.tokens.iter().enumerate() {
        if let Some(place) = place(answer, turn, index, token) {
            spots.push(Spot { place, offset: text.len() });
        }
        text.push_str(&String::from_utf8_lossy(token.piece.text_bytes()).to_lowercase());
    }
    let mut places: Vec<SearchHit> = Vec::new();
    for (at, _) in text.match_indices(wanted) {
        let behind = spots.partition_point(|spot| spot.offset <= at);
        let spot = behind.checked_sub(1).map(|i| &spots[i]);
        places.extend(spot.map(|spot| spot.place).filter(|place| places.last() != Some(place)));
    }
    places
}

/// The round and column of an output token; a token that a branch copied has none.
fn place(answer: &Answer, turn: usize, index: usize, token: &Token) -> Option<SearchHit> {
    if token.provenance == Provenance::Prefill {
        return Some((RoundAt { turn, round: None }, Some(0)));
    }
    let round = answer.rounds.partition_point(|round| round.number() < token.round);
    let found = answer.rounds.get(round).filter(|found| found.number() == token.round && token.round > 0)?;
    let place = index.checked_sub(found.first_token)?;
    Some((RoundAt { turn, round: Some(round) }, Some(found.column_of(place))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use draftscope_session::fixture::conversation;

    #[test]
    fn texts_are_found_across_tokens_and_round_the_end() {
        let mut session = Session::new();
        conversation().events.iter().for_each(|event| session.apply(event));
        let at = |turn, round, cell| Some((RoundAt { turn, round: Some(round) }, Some(cell)));
        let first = find(&session, "IS BLUE", None, true);
        assert_eq!(first, at(0, 1, 0));
        assert_eq!(find(&session, "is blue", first, true), first, "the only place");
        let sun = find(&session, "sun", None, true);
        assert_eq!(sun, at(0, 5, 1));
        assert_eq!(find(&session, "sun", sun, true), at(1, 0, 0));
        assert_eq!(find(&session, "sun", sun, false), at(1, 0, 0));
        assert_eq!(find(&session, "color", None, true), None, "a discarded draft is not in the answer");
        assert_eq!(find(&session, "", None, true), None);
        assert_eq!(standing(&session, "sun", sun), (Some(1), 2));
        assert_eq!(standing(&session, "sun", at(1, 0, 0)), (Some(2), 2));
        assert_eq!(standing(&session, "sun", None), (None, 2));
        assert_eq!(standing(&session, "color", sun), (None, 0));
        assert_eq!(standing(&session, "", sun), (None, 0));
    }
}
