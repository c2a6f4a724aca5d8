//! The bar of a turn that has been played: every round is equally wide, so that a slow start or a wait takes no more of
//! it than other rounds.

use draftscope_protocol::EventKind;
use draftscope_session::{Timeline, TurnSpan};

use crate::view::prelude::*;

/// Where moments stand in a bar.
pub(in crate::view) struct RoundScale {
    /// The moments of the turn that have a place: its beginning, then the end of each round.
    stops: Vec<u64>,
    /// Cells of the bar, at least 1.
    room: usize,
}

impl RoundScale {
    pub(in crate::view) fn of(time: &Timeline, span: &TurnSpan, room: usize) -> Self {
        let first = time.first();
        let skipped = span.events.start.saturating_sub(first) as usize;
        let kept = time.events().enumerate().skip(skipped).take((span.events.end - span.events.start) as usize);
        let ends =
            kept.filter(|(_, event)| event.lane == Lane::Speculative && matches!(event.kind, EventKind::Committed(_)));
        let ends = ends.map(|(index, _)| first + index as u64 + 1);
        Self { stops: std::iter::once(span.events.start).chain(ends).collect(), room: room.max(1) }
    }

    /// The cell of a moment, given as the number of events before it.
    pub(in crate::view) fn cell(&self, moment: u64) -> usize {
        let rounds = self.stops.partition_point(|stop| *stop <= moment).saturating_sub(1);
        rounds * (self.room - 1) / self.rounds()
    }

    /// The moment at a cell: the end of a round, or the beginning of the turn.
    pub(in crate::view) fn moment(&self, cell: usize) -> u64 {
        let round = (cell * self.rounds()).div_ceil((self.room - 1).max(1)).min(self.stops.len() - 1);
        self.stops[round]
    }

    /// At least 1.
    fn rounds(&self) -> usize {
        (self.stops.len() - 1).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_is_equally_wide() {
        let scale = RoundScale { stops: vec![3, 10, 12, 900, 904], room: 9 };
        assert_eq!(
            [0, 3, 9, 10, 11, 12, 899, 900, 904, 999].map(|moment| scale.cell(moment)),
            [0, 0, 0, 2, 2, 4, 4, 6, 8, 8]
        );
        assert_eq!([0, 1, 2, 3, 4, 6, 8].map(|cell| scale.moment(cell)), [3, 10, 10, 12, 12, 900, 904]);
        for (stops, room) in [(vec![5], 1), (vec![5], 9), (vec![5, 6], 1), ((0..500).collect(), 20)] {
            let scale = RoundScale { stops, room };
            for cell in 0..room {
                assert_eq!(scale.cell(scale.moment(cell)).min(room - 1), scale.cell(scale.moment(cell)));
            }
        }
    }
}
