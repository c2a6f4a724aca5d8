//! The columns of the ladder: which positions are in view, and how wide each part of a line is.
//!
//! Invariant: where there is little room, words get shorter first, then q goes, then the times, then positions scroll.
//! Marks, words and the target's p stay.

use std::ops::Range;

use crate::view::prelude::*;

/// Width of the round's number and its marks.
pub(in crate::view) const LABEL: usize = 7;

/// Width of a mark and the space after it.
pub(in crate::view) const MARK: usize = 2;

/// Width of a probability with the space before it.
pub(in crate::view) const NUMBER: usize = 5;

/// Width between two columns.
pub(in crate::view) const GAP: usize = 1;

/// Least and greatest width of a word.
const WORD: (usize, usize) = (6, 18);

/// Least width of the times.
const TIMES: usize = 14;

/// Columns in view and their widths.
pub(in crate::view) struct Grid {
    first: usize,
    /// Positions in view.
    pub(in crate::view) count: usize,
    /// Positions of all rounds in view.
    all: usize,
    pub(in crate::view) word: usize,
    pub(in crate::view) has_q: bool,
    /// Width of the dots of kept tokens.
    pub(in crate::view) kept: usize,
    /// Width of the times; 0 if there is no room for them.
    pub(in crate::view) times: usize,
    /// The longest time in view, in microseconds.
    pub(in crate::view) most_us: f64,
    /// Time of a plain token, if it was measured.
    pub(in crate::view) plain_us: Option<f64>,
}

impl Grid {
    /// Columns for the widest of the rounds in view, around the chosen one.
    pub(in crate::view) fn of(screen: Screen, shown: &[&Round], width: u16) -> Self {
        let all = shown.iter().map(|round| round.drafts.len()).max().unwrap_or(0).max(1);
        let tokens = shown.iter().map(|round| round.committed().len()).max().unwrap_or(0).max(all.min(7) + 1);
        let kept = tokens.clamp(4, 16) + GAP;
        let room = usize::from(width).saturating_sub(LABEL + kept);
        let own = MARK + NUMBER + GAP;
        let word = |has_q: bool, times: usize| {
            let numbers = all * (MARK + NUMBER * (1 + usize::from(has_q)) + GAP) + own + times;
            room.checked_sub(numbers).map_or(0, |left| left / (all + 1)).min(WORD.1)
        };
        let forms = [(true, TIMES), (false, TIMES), (false, 0)];
        let found = forms.into_iter().map(|(has_q, times)| (has_q, times, word(has_q, times)));
        let found = found.into_iter().find(|(.., word)| *word >= WORD.0);
        let (has_q, least, word) = found.unwrap_or((false, 0, WORD.0));
        let mut grid = Self {
            first: 0,
            count: all,
            all,
            word,
            has_q,
            kept,
            times: 0,
            most_us: 0.0,
            plain_us: screen.turn().and_then(plain_us),
        };
        grid.count = (room.saturating_sub(own + word) / grid.position()).clamp(1, all);
        let focus = screen.app.place.cell.unwrap_or(0).min(all - 1);
        grid.first = (focus + 1).saturating_sub(grid.count).min(all - grid.count);
        if least > 0 {
            grid.times = room.saturating_sub(grid.count * grid.position() + own + word);
        }
        let longest = shown.iter().map(|round| took(round).iter().sum::<f64>());
        grid.most_us = longest.fold(grid.plain_us.unwrap_or(0.0), f64::max).max(1.0);
        grid
    }

    /// Width of a position with the gap after it.
    pub(in crate::view) fn position(&self) -> usize {
        MARK + self.word + NUMBER * (1 + usize::from(self.has_q)) + GAP
    }

    /// The positions in view.
    pub(in crate::view) fn range(&self) -> Range<usize> {
        self.first..self.first + self.count
    }

    /// Whether there are more at the left and at the right.
    pub(in crate::view) fn has_more(&self) -> [bool; 2] {
        [self.first > 0, self.first + self.count < self.all]
    }
}

/// What a plain token took, in microseconds.
fn plain_us(turn: &Turn) -> Option<f64> {
    turn.tokens_per_second(Lane::Plain).filter(|speed| *speed > 0.0).map(|speed| 1e6 / speed)
}

/// Draft, verify and the rest of a round in microseconds; all of it as verify where the parts were not reported.
pub(in crate::view) fn took(round: &Round) -> [f64; 3] {
    if round.lacks_phases() {
        return [0.0, round.took_us() as f64, 0.0];
    }
    [round.draft_us(), round.verify_us(), round.sample_us().saturating_add(round.rollback_us())].map(|us| us as f64)
}
