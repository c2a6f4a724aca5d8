//! What a token is worth and what rows and drafts cost: the prices by which copies and drafts of a model are compared.

use crate::{Costs, MAX_DRAFT_LEN};

const ROWS: usize = MAX_DRAFT_LEN as usize;
/// Rows at the end of the timed ones whose mean price is taken for wider passes.
const LAST: usize = 4;

/// Prices in one unit of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worth {
    /// A committed token: the time that it takes otherwise.
    pub token: f64,
    /// A draft of a model.
    pub draft: f64,
    /// The row of a draft after 0, 1, 2, … others.
    rows: [f64; ROWS],
}

impl Worth {
    /// Usual prices in passes over one row, where none were measured: for a fixed k, whose rounds must not change from run
    /// to run. They are those of the default model on processors with AVX-512: T(4) 1.18, T(8) 1.67, T(16) 3.1 times T(1), a
    /// draft 4 to 6 %. Where rows cost less, few copies are lost. Too low a price loses more: copies then cost more than they
    /// bring.
    #[must_use]
    pub const fn usual() -> Self {
        let mut rows = [0.16; ROWS];
        (rows[0], rows[1], rows[2], rows[3]) = (0.03, 0.06, 0.09, 0.06);
        Self { token: 0.55, draft: 0.05, rows }
    }

    /// Prices by measured costs, if a token takes `token_us` microseconds.
    pub(super) fn of(costs: &Costs, token_us: f64) -> Self {
        let steps: Vec<f64> = costs.verify_us.windows(2).map(|pair| (pair[1] - pair[0]).max(0.0)).collect();
        let last = &steps[steps.len().saturating_sub(LAST)..];
        let wider = if last.is_empty() { f64::INFINITY } else { last.iter().sum::<f64>() / last.len() as f64 };
        let rows = std::array::from_fn(|made| steps.get(made).copied().unwrap_or(wider));
        Self { token: token_us, draft: costs.draft_us, rows }
    }

    /// The price of the row of a draft after `made` others.
    #[must_use]
    pub fn row(&self, made: usize) -> f64 {
        self.rows.get(made).copied().unwrap_or(f64::INFINITY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wider_passes_than_were_timed_go_on_as_the_last_ones() {
        let verify_us = vec![100.0, 101.0, 103.0, 105.0, 107.0, 109.0, 108.0];
        let costs = Costs { verify_us, draft_us: 9.0, ..Costs::default() };
        let worth = Worth::of(&costs, 60.0);
        assert_eq!([worth.row(0), worth.row(1), worth.row(5)], [1.0, 2.0, 0.0]);
        assert_eq!((worth.row(6), worth.row(14)), (1.5, 1.5), "the mean of 2, 2, 2 and 0");
        assert_eq!((worth.row(15), worth.draft), (f64::INFINITY, 9.0));
        assert_eq!(Worth::of(&Costs::default(), 60.0).row(0), f64::INFINITY, "nothing was timed");
    }
}
