//! What happens as the context grows: the share of drafts accepted, and the time of a pass over one row, by position.
//!
//! Invariant: the cells are equally wide from position 0 on and at most [`CELLS`]; when a position lies beyond them, pairs
//! of neighbours become one. So the memory is bounded, and nothing depends on how long an answer will be.

use super::{LaneStats, Round};
use draftscope_protocol::statistics::median;

/// Most cells.
const CELLS: usize = 24;

/// Positions of a cell at first.
const WIDTH: u64 = 8;

/// Most times that a cell keeps.
const TIMES: usize = 64;

/// Rounds whose first row stands in a range of positions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Cell {
    rounds: u64,
    drafted: u64,
    accepted: u64,
    /// Times of passes over one row, in microseconds.
    one_row_us: Vec<u32>,
}

impl Cell {
    fn merge(&mut self, other: &Self) {
        self.rounds = self.rounds.saturating_add(other.rounds);
        self.drafted = self.drafted.saturating_add(other.drafted);
        self.accepted = self.accepted.saturating_add(other.accepted);
        self.one_row_us.extend(&other.one_row_us);
        if self.one_row_us.len() > TIMES {
            let kept = self.one_row_us.iter().step_by(2).copied().collect();
            self.one_row_us = kept;
        }
    }
}

/// Rounds of a lane by position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ByContext {
    width: u64,
    cells: Vec<Cell>,
}

impl Default for ByContext {
    fn default() -> Self {
        Self { width: WIDTH, cells: Vec::new() }
    }
}

impl ByContext {
    /// Adds a complete round.
    pub(super) fn add(&mut self, round: &Round) {
        let is_plain = round.rows.len() == 1 && !round.follows_wait && round.verify_us > 0;
        let one_row_us = is_plain.then(|| u32::try_from(round.verify_us).unwrap_or(u32::MAX));
        let cell = Cell {
            rounds: 1,
            drafted: round.drafts.len() as u64,
            accepted: round.accepted() as u64,
            one_row_us: one_row_us.into_iter().collect(),
        };
        self.add_at(u64::from(round.base_len), &cell);
    }

    fn add_at(&mut self, position: u64, cell: &Cell) {
        while position / self.width >= CELLS as u64 {
            self.widen();
        }
        let index = (position / self.width) as usize;
        if self.cells.len() <= index {
            self.cells.resize(index + 1, Cell::default());
        }
        self.cells[index].merge(cell);
    }

    /// Makes one cell of each pair.
    fn widen(&mut self) {
        self.width *= 2;
        let pairs = std::mem::take(&mut self.cells);
        self.cells = pairs.chunks(2).map(merged).collect();
    }

    pub(super) fn merge(&mut self, other: &Self) {
        while self.width < other.width {
            self.widen();
        }
        for (index, cell) in other.cells.iter().enumerate().filter(|(_, cell)| cell.rounds > 0) {
            self.add_at(index as u64 * other.width, cell);
        }
    }
}

fn merged(cells: &[Cell]) -> Cell {
    cells.iter().fold(Cell::default(), |mut sum, cell| {
        sum.merge(cell);
        sum
    })
}

/// What was measured in a range of positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContextSlice {
    /// First position.
    pub from: u64,
    /// Last position.
    pub to: u64,
    /// Accepted ÷ drafted of the lane's rounds; `None` where nothing was drafted.
    pub accepted_share: Option<f64>,
    /// Median time of a pass over one row, T(1), in microseconds, of both lanes; `None` where there was none.
    pub one_row_us: Option<f64>,
}

/// At most `most` ranges, equally wide, that cover the positions of a lane's rounds; T(1) also from those of the lane beside it.
#[must_use]
pub fn by_context(own: &LaneStats, beside: &LaneStats, most: usize) -> Vec<ContextSlice> {
    let mut all = own.by_context.clone();
    let mut plain = beside.by_context.clone();
    all.merge(&ByContext { width: plain.width, cells: Vec::new() });
    while plain.width < all.width {
        plain.widen();
    }
    for (cell, beside) in all.cells.iter_mut().zip(&plain.cells) {
        cell.merge(&Cell { one_row_us: beside.one_row_us.clone(), ..Cell::default() });
    }
    let Some(first) = all.cells.iter().position(|cell| cell.rounds > 0) else { return Vec::new() };
    let count = (all.cells.len() - first).div_ceil(most.max(1)).max(1);
    let slice = |(index, cells): (usize, &[Cell])| {
        let sum = merged(cells);
        let from = (first + index * count) as u64 * all.width;
        ContextSlice {
            from,
            to: from + cells.len() as u64 * all.width - 1,
            accepted_share: (sum.drafted > 0).then(|| sum.accepted as f64 / sum.drafted as f64),
            one_row_us: median(sum.one_row_us.iter().map(|us| f64::from(*us)).collect()),
        }
    };
    all.cells[first..].chunks(count).enumerate().map(slice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(drafted: u64, accepted: u64, us: &[u32]) -> Cell {
        Cell { rounds: 1, drafted, accepted, one_row_us: us.to_vec() }
    }

    fn slices(cells: &[(u64, Cell)], most: usize) -> Vec<ContextSlice> {
        let mut own = LaneStats::default();
        cells.iter().for_each(|(position, cell)| own.by_context.add_at(*position, cell));
        by_context(&own, &LaneStats::default(), most)
    }

    #[test]
    fn shares_and_times_are_those_of_their_positions() {
        let found = slices(&[(40, cell(4, 4, &[10, 12, 90])), (60, cell(4, 1, &[])), (61, cell(2, 0, &[20]))], 9);
        let shown: Vec<_> = found.iter().map(|s| (s.from, s.to, s.accepted_share, s.one_row_us)).collect();
        let expected = [(40, 47, Some(1.0), Some(12.0)), (48, 55, None, None), (56, 63, Some(1.0 / 6.0), Some(20.0))];
        assert_eq!(shown, expected);
        assert_eq!(slices(&[(40, cell(4, 4, &[])), (60, cell(4, 2, &[]))], 1)[0].accepted_share, Some(0.75));
        assert_eq!(slices(&[], 5), []);
    }

    #[test]
    fn however_long_an_answer_is_its_sums_hold_and_its_memory_is_bounded() {
        let mut own = ByContext::default();
        for position in 0..100_000 {
            own.add_at(position, &cell(2, 1, &[7]));
        }
        assert!(own.cells.len() <= CELLS && own.cells.iter().all(|cell| cell.one_row_us.len() <= TIMES));
        assert_eq!(own.cells.iter().map(|cell| cell.drafted).sum::<u64>(), 200_000);
        let mut both = ByContext::default();
        both.add_at(5, &cell(3, 3, &[]));
        both.merge(&own);
        own.add_at(5, &cell(3, 3, &[]));
        assert_eq!((both.width, &both.cells), (own.width, &own.cells), "in any order");
    }

    #[test]
    fn t1_is_measured_in_the_lane_beside() {
        let (mut own, mut plain) = (LaneStats::default(), LaneStats::default());
        own.by_context.add_at(9, &cell(2, 1, &[]));
        (0..500).for_each(|position| plain.by_context.add_at(position, &cell(0, 0, &[30])));
        let found = by_context(&own, &plain, 4);
        assert_eq!((found.len(), found[0].one_row_us, found[0].accepted_share), (1, Some(30.0), Some(0.5)));
    }
}
