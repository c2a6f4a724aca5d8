//! How much of old rounds and turns a session keeps.
//!
//! Invariant: of all rounds, the newest [`FULL_ROUNDS`] keep every candidate, the newest [`LISTED_ROUNDS`] those that the
//! round table shows, and older ones none. So an event of a long session takes a few hundred bytes, whatever it recorded.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, LazyLock};

use crate::protocol::Lane;

use super::{Answer, FULL_ROUNDS, Round, Session, Settled};

/// The answer of a lane that has not run, shared by all turns.
static EMPTY: LazyLock<Arc<Answer>> = LazyLock::new(Arc::default);

/// Answers of a turn in which no lane has run.
pub(super) fn no_answers() -> [Arc<Answer>; Lane::ALL.len()] {
    std::array::from_fn(|_| Arc::clone(&EMPTY))
}

/// Rounds that keep the candidates of the round table.
pub const LISTED_ROUNDS: usize = 1 << 14;

/// A round by turn, lane and index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) turn: u32,
    pub(super) lane: Lane,
    pub(super) round: u32,
}

/// The newest rounds, if the session is for the screen; any other session keeps them all.
#[derive(Clone, Default)]
pub(super) struct KeptRounds(Option<[VecDeque<Place>; 2]>);

impl KeptRounds {
    pub(super) fn bounded() -> Self {
        Self(Some(Default::default()))
    }

    /// The same without any round.
    pub(super) fn emptied(&self) -> Self {
        if self.0.is_some() { Self::bounded() } else { Self::default() }
    }

    /// Notes that a round begins. Returns the round that now keeps only what the table shows, and the one that keeps no
    /// candidates.
    pub(super) fn begin(&mut self, place: Place) -> [Option<Place>; 2] {
        let Some([full, listed]) = &mut self.0 else { return [None; 2] };
        full.push_back(place);
        let shrunk = if full.len() > FULL_ROUNDS { full.pop_front() } else { None };
        listed.extend(shrunk);
        [shrunk, if listed.len() > LISTED_ROUNDS - FULL_ROUNDS { listed.pop_front() } else { None }]
    }
}

/// Prints nothing: what it notes follows from the rounds.
impl fmt::Debug for KeptRounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeptRounds")
    }
}

impl Session {
    /// Drops all turns but the newest, whose number and the run's statistics stay. For a run whose answers are needed only
    /// until the next prompt. Does nothing while an answer is being written.
    pub fn drop_old_turns(&mut self) {
        if self.is_generating() {
            return;
        }
        let Some(newest) = self.turns.pop() else { return };
        for lane in Lane::ALL {
            let old = self.turns.iter().map(|turn| turn.answer(*lane).stats());
            old.for_each(|stats| self.dropped[lane.index()].merge(stats));
            self.lanes[lane.index()].turn = None;
        }
        self.settled = Settled::default();
        self.typed_bytes = newest.typed.len();
        self.numbers = Arc::new(BTreeMap::from([(newest.number, 0)]));
        self.kept = self.kept.emptied();
        self.turns = vec![newest];
    }

    /// A round of this lane has begun: drops candidates of rounds that are old now.
    pub(super) fn release_old_rounds(&mut self, lane: Lane) {
        let Some(turn) = self.lanes[lane.index()].turn else { return };
        let round = self.turns[turn].answer(lane).rounds.len().saturating_sub(1);
        let [shrunk, stripped] = self.kept.begin(Place { turn: turn as u32, lane, round: round as u32 });
        for (place, release) in [(shrunk, Round::shrink as fn(&mut Round)), (stripped, Round::strip)] {
            let Some(Place { turn, lane, round }) = place else { continue };
            let Some(turn) = self.turns.get_mut(turn as usize) else { continue };
            let answer = Arc::make_mut(&mut turn.answers[lane.index()]);
            if let Some(round) = answer.rounds.get_mut(round as usize) {
                release(Arc::make_mut(round));
            }
        }
    }
}
