//! What a session drops of rounds and turns that are over, and what it sums up.

use std::collections::BTreeMap;
use std::sync::Arc;

use draftscope_protocol::Lane;

use super::fold::Session;
use super::kept_rounds::Place;
use super::phase::Phase;
use super::round::Round;
use super::settled::Settled;
use super::stats::LaneStats;

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

    /// A prompt came: sums the turns before the newest one, and before those that a lane still works on.
    pub(super) fn settle_turns(&mut self) {
        let busy = self.lanes.iter().filter(|lane| lane.phase != Phase::Idle).filter_map(|lane| lane.turn);
        let until = busy.chain([self.turns.len().saturating_sub(1)]).min().unwrap_or(0);
        for turn in self.turns.iter().take(until).skip(self.settled.turns) {
            for lane in Lane::ALL {
                self.settled.sums[lane.index()].merge(turn.answer(*lane).stats());
            }
        }
        self.settled.turns = self.settled.turns.max(until);
    }

    /// Statistics of a lane over the whole session.
    #[must_use]
    pub fn stats(&self, lane: Lane) -> LaneStats {
        let mut sum = self.dropped[lane.index()].clone();
        sum.merge(&self.settled.sums[lane.index()]);
        for turn in self.turns.iter().skip(self.settled.turns) {
            sum.merge(turn.answer(lane).stats());
        }
        sum
    }
}
