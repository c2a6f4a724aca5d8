//! What happens as the context grows: acceptance, tokens per round, times of passes, and the speedup, by position.
//!
//! Over long contexts the ranges are bands of [`BAND`] positions or multiples of them. The speedup of a range divides the
//! speeds of both lanes at these positions, since both lanes pass them.
//!
//! Invariant: the cells are equally wide from position 0 on and at most [`CELLS`]; when a position lies beyond them, pairs
//! of neighbours become one. So the memory is bounded, and nothing depends on how long an answer will be.

use super::round::Round;
use draftscope_protocol::statistics::median;

/// Most cells.
const CELLS: usize = 24;

/// Positions of a cell at first.
const WIDTH: u64 = 8;

/// Positions of a band, where a turn reaches over more than two of them.
const BAND: u64 = 512;

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
    /// Times of passes over a draft, in microseconds.
    drafted_us: Vec<u32>,
    /// Tokens of all rounds; tokens and time of those that followed no wait.
    tokens: u64,
    timed: (u64, u64),
    /// Tokens and time of the plain lane's rounds.
    plain: (u64, u64),
}

/// Adds times and keeps a bounded number of them.
fn extend(times: &mut Vec<u32>, more: &[u32]) {
    times.extend(more);
    if times.len() > TIMES {
        *times = times.iter().step_by(2).copied().collect();
    }
}

fn sum(a: (u64, u64), b: (u64, u64)) -> (u64, u64) {
    (a.0.saturating_add(b.0), a.1.saturating_add(b.1))
}

impl Cell {
    fn merge(&mut self, other: &Self) {
        self.rounds = self.rounds.saturating_add(other.rounds);
        self.drafted = self.drafted.saturating_add(other.drafted);
        self.accepted = self.accepted.saturating_add(other.accepted);
        self.tokens = self.tokens.saturating_add(other.tokens);
        (self.timed, self.plain) = (sum(self.timed, other.timed), sum(self.plain, other.plain));
        extend(&mut self.one_row_us, &other.one_row_us);
        extend(&mut self.drafted_us, &other.drafted_us);
    }

    /// What a cell of the plain lane adds to that of the lane beside it.
    fn as_plain(&self) -> Self {
        Self { one_row_us: self.one_row_us.clone(), plain: self.timed, ..Self::default() }
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
        let us =
            (round.is_timed() && round.verify_us() > 0).then(|| u32::try_from(round.verify_us()).unwrap_or(u32::MAX));
        let (tokens, took_us) =
            (round.committed().len() as u64, round.clock_us().saturating_sub(round.clock_before_us));
        let cell = Cell {
            rounds: 1,
            drafted: round.drafts.len() as u64,
            accepted: round.accepted() as u64,
            one_row_us: us.filter(|_| round.rows().len() == 1).into_iter().collect(),
            drafted_us: us.filter(|_| round.rows().len() > 1).into_iter().collect(),
            tokens,
            timed: if round.is_timed() { (tokens, took_us) } else { (0, 0) },
            plain: (0, 0),
        };
        self.add_at(u64::from(round.base_len()), &cell);
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

    /// At most `most` ranges, equally wide, that cover the positions of a lane's rounds; T(1) and the speedup also from those of
    /// the lane beside it.
    pub(super) fn slices(&self, beside: &Self, most: usize) -> Vec<ContextSlice> {
        let (mut all, mut plain) = (self.clone(), beside.clone());
        all.merge(&ByContext { width: plain.width, cells: Vec::new() });
        while plain.width < all.width {
            plain.widen();
        }
        for (cell, beside) in all.cells.iter_mut().zip(&plain.cells) {
            cell.merge(&beside.as_plain());
        }
        let Some(first) = all.cells.iter().position(|cell| cell.rounds > 0) else { return Vec::new() };
        let band = (BAND / all.width).max(1) as usize;
        let unit = if all.cells.len() - first > 2 * band { band } else { 1 };
        let first = first / unit * unit;
        let count = unit * (all.cells.len() - first).div_ceil(unit).div_ceil(most.max(1)).max(1);
        let per = |above: f64, below: u64| (below > 0).then(|| above / below as f64);
        let slice = |(index, cells): (usize, &[Cell])| {
            let sum = merged(cells);
            let from = (first + index * count) as u64 * all.width;
            ContextSlice {
                from,
                to: from + cells.len() as u64 * all.width - 1,
                accepted_share: per(sum.accepted as f64, sum.drafted),
                tokens_per_round: per(sum.tokens as f64, sum.rounds),
                one_row_us: median(sum.one_row_us.iter().map(|us| f64::from(*us)).collect()),
                drafted_us: median(sum.drafted_us.iter().map(|us| f64::from(*us)).collect()),
                speedup: per(sum.timed.0 as f64, sum.timed.1)
                    .zip(per(sum.plain.0 as f64, sum.plain.1))
                    .and_then(|(own, plain)| (own > 0.0 && plain > 0.0).then(|| own / plain)),
            }
        };
        all.cells[first..].chunks(count).enumerate().map(slice).collect()
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
    /// Committed tokens ÷ rounds.
    pub tokens_per_round: Option<f64>,
    /// Median time of a pass over one row, T(1), in microseconds, of both lanes; `None` where there was none.
    pub one_row_us: Option<f64>,
    /// Median time of a pass over a draft, T(k + 1), in microseconds; `None` where there was none.
    pub drafted_us: Option<f64>,
    /// The lane's tokens per second ÷ those of the lane beside it; `None` where one of them was not measured.
    pub speedup: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(drafted: u64, accepted: u64, us: &[u32]) -> Cell {
        Cell { rounds: 1, drafted, accepted, one_row_us: us.to_vec(), ..Cell::default() }
    }

    fn slices(cells: &[(u64, Cell)], most: usize) -> Vec<ContextSlice> {
        let mut own = ByContext::default();
        cells.iter().for_each(|(position, cell)| own.add_at(*position, cell));
        own.slices(&ByContext::default(), most)
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
    fn over_a_long_context_the_ranges_are_bands_of_512_positions() {
        let (mut own, mut plain) = (ByContext::default(), ByContext::default());
        for position in (700..3000).step_by(4) {
            let slow = if position < 2048 { 10 } else { 20 };
            own.add_at(position, &Cell { tokens: 3, timed: (3, slow), drafted_us: vec![8], ..cell(2, 2, &[]) });
            plain.add_at(position, &Cell { tokens: 1, timed: (1, 5), ..cell(0, 0, &[4]) });
        }
        let found = own.slices(&plain, 5);
        let rounded = |speedup: f64| (speedup * 100.0).round();
        let shown: Vec<_> = found.iter().map(|s| (s.from, s.to, s.speedup.map(rounded))).collect();
        let bands = [(512, 1023), (1024, 1535), (1536, 2047), (2048, 2559), (2560, 3071)];
        let expected: Vec<_> =
            bands.iter().map(|(from, to)| (*from, *to, Some(if *from < 2048 { 150.0 } else { 75.0 }))).collect();
        assert_eq!(shown, expected);
        let first = found[0];
        assert_eq!((first.tokens_per_round, first.one_row_us, first.drafted_us), (Some(3.0), Some(4.0), Some(8.0)));
        let wider: Vec<_> = own.slices(&plain, 2).iter().map(|s| (s.from, s.to)).collect();
        assert_eq!(wider, [(512, 2047), (2048, 3071)], "as many bands in each as fit");
        assert_eq!(own.slices(&ByContext::default(), 5)[0].speedup, None, "nothing was decoded plainly");
    }

    #[test]
    fn t1_is_measured_in_the_lane_beside() {
        let (mut own, mut plain) = (ByContext::default(), ByContext::default());
        own.add_at(9, &cell(2, 1, &[]));
        (0..500).for_each(|position| plain.add_at(position, &cell(0, 0, &[30])));
        let found = own.slices(&plain, 4);
        assert_eq!((found.len(), found[0].one_row_us, found[0].accepted_share), (1, Some(30.0), Some(0.5)));
    }
}
