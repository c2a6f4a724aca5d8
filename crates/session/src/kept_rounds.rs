//! How much of old rounds and turns a session keeps.
//!
//! Invariant: in a session for the screen, of all rounds the newest [`FULL_ROUNDS`] keep every candidate, the newest
//! [`LISTED_ROUNDS`] those that the round table shows, and older ones none. In a session for a page, the first rounds of the
//! speculative lane keep their candidates. So an event of a long session takes a few hundred bytes, whatever it recorded.

use std::collections::VecDeque;
use std::fmt;

use draftscope_protocol::Lane;

/// Rounds per answer that keep every candidate; older ones keep what the round table shows.
pub const FULL_ROUNDS: usize = 2048;

/// Rounds that keep the candidates of the round table.
pub const LISTED_ROUNDS: usize = 1 << 14;

/// A round by turn, lane and index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) turn: u32,
    pub(super) lane: Lane,
    pub(super) round: u32,
}

/// Which rounds keep their candidates.
#[derive(Clone, Default)]
pub(super) enum KeptRounds {
    #[default]
    All,
    /// The newest: those with every candidate, and those of the round table.
    Newest([VecDeque<Place>; 2]),
    /// The first of the speculative lane: how many, how many have begun, and the other rounds that now run, by lane.
    First { most: usize, begun: usize, running: [Option<Place>; Lane::ALL.len()] },
}

impl KeptRounds {
    pub(super) fn newest() -> Self {
        Self::Newest(Default::default())
    }

    pub(super) fn first(most: usize) -> Self {
        Self::First { most, begun: 0, running: Default::default() }
    }

    /// The same before any round.
    pub(super) fn emptied(&self) -> Self {
        match self {
            Self::All => Self::All,
            Self::Newest(_) => Self::newest(),
            Self::First { most, .. } => Self::first(*most),
        }
    }

    /// Notes that a round begins. Returns the round that now keeps only what the table shows, and the one that keeps no
    /// candidates.
    pub(super) fn begin(&mut self, place: Place) -> [Option<Place>; 2] {
        match self {
            Self::All => [None; 2],
            Self::Newest([full, listed]) => {
                full.push_back(place);
                let shrunk = if full.len() > FULL_ROUNDS { full.pop_front() } else { None };
                listed.extend(shrunk);
                [shrunk, if listed.len() > LISTED_ROUNDS - FULL_ROUNDS { listed.pop_front() } else { None }]
            }
            Self::First { most, begun, running } => {
                let is_kept = place.lane == Lane::Speculative && begun < most;
                *begun += usize::from(is_kept);
                let before = std::mem::replace(&mut running[place.lane.index()], (!is_kept).then_some(place));
                [None, before]
            }
        }
    }
}

/// Prints nothing: what it notes follows from the rounds.
impl fmt::Debug for KeptRounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeptRounds")
    }
}
