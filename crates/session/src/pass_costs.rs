//! What passes cost in a turn: T(m), a draft, and the time outside both.
//!
//! Invariant: everything is measured against passes over one row of the same [stretch](super::stretches), so all values
//! hold for the same machine state: times in microseconds are these ratios × T(1). No width is interpolated.

use serde::Serialize;

use draftscope_protocol::Costs;

/// The CPU backend that reads every weight once a pass, so that several rows never take less time than one.
pub(super) const NATIVE: &str = "native";

/// T(m): the cost of the target's pass over m rows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PassCost {
    /// m, from 1.
    pub rows: usize,
    /// Passes compared with passes over one row near them.
    pub count: usize,
    /// T(m) ÷ T(1): 1 for one row.
    pub ratio: f64,
    /// Its 95 % interval; `None` for one row, and for a width that occurred in too few stretches.
    pub low: Option<f64>,
    /// Its upper end.
    pub high: Option<f64>,
    /// T(m) in microseconds: ratio × T(1).
    pub us: f64,
    /// Median time of passes over m rows on a GPU, in microseconds: from the start of the first launch to the end of the
    /// last. `None` where the processor computes, or the device notes no times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_us: Option<f64>,
}

impl PassCost {
    /// The larger distance from the ratio to an end of its interval, at least 0.01.
    #[must_use]
    pub fn margin(&self) -> Option<f64> {
        let (low, high) = self.low.zip(self.high)?;
        Some((high - self.ratio).max(self.ratio - low).max(0.01))
    }

    /// Whether it costs less than one row by more than the interval.
    #[must_use]
    pub fn is_below_one_row(&self) -> bool {
        self.high.is_some_and(|high| high < 1.0)
    }
}

/// Costs in a turn.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PassCosts {
    /// Every width measured next to one row, one row first.
    pub widths: Vec<PassCost>,
    /// Widths of passes without a pass over one row near them.
    pub unmeasured: Vec<usize>,
    /// One drafted token, in microseconds; 0 if nothing was drafted.
    pub draft_us: f64,
    /// A block drafter's pass in a round that drafts, apart from its tokens, in microseconds; 0 for others.
    pub draft_pass_us: f64,
    /// The part of a round outside drafts and pass, in microseconds.
    pub overhead_us: f64,
    /// Whether no pass over several rows costs less than one over one row on this device.
    #[serde(skip)]
    pub(super) has_ceiling: bool,
}

impl PassCosts {
    /// T(m), if this width was measured.
    #[must_use]
    pub fn rows(&self, rows: usize) -> Option<&PassCost> {
        self.widths.iter().find(|cost| cost.rows == rows)
    }

    /// The first width that costs less than one row by more than its interval, where that is impossible: other work
    /// slowed some of the passes.
    #[must_use]
    pub fn impossible(&self) -> Option<&PassCost> {
        self.widths.iter().find(|cost| self.has_ceiling && cost.is_below_one_row())
    }

    /// The form in which predictions use them: widths between two measured ones are interpolated linearly. Where no pass
    /// is cheaper than one over one row, a width measured below it, within its interval, counts as much as one row.
    /// `None` if a width is [impossible](Self::impossible): nothing follows from such figures.
    #[must_use]
    pub fn costs(&self) -> Option<Costs> {
        if self.impossible().is_some() {
            return None;
        }
        let widest = self.widths.last().map_or(0, |cost| cost.rows);
        Some(Costs {
            verify_us: (1..=widest).map(|rows| self.interpolated(rows)).collect(),
            draft_us: self.draft_us,
            draft_pass_us: self.draft_pass_us,
            settle_us: 0.0, // contained in the drafts' own time
            overhead_us: self.overhead_us,
        })
    }

    /// T(m) of a measured width in microseconds, at least T(1) where less is impossible.
    fn bounded_us(&self, cost: &PassCost) -> f64 {
        let one = self.widths.first().map_or(0.0, |one| one.us);
        if self.has_ceiling { cost.us.max(one) } else { cost.us }
    }

    fn interpolated(&self, rows: usize) -> f64 {
        let above = self.widths.partition_point(|cost| cost.rows < rows).min(self.widths.len() - 1);
        let (high, low) = (self.widths[above], self.widths[above.saturating_sub(1)]);
        let [high_us, low_us] = [high, low].map(|cost| self.bounded_us(&cost));
        if high.rows <= rows || low.rows == high.rows {
            return high_us;
        }
        low_us + (high_us - low_us) * (rows - low.rows) as f64 / (high.rows - low.rows) as f64
    }
}

/// Whether no pass over several rows costs less than one over one row with this backend.
#[must_use]
pub fn has_ceiling(backend: &str) -> bool {
    backend == NATIVE
}

/// T(m) by the number of rows, each at least T(1): for passes of a backend that [has a ceiling](has_ceiling), measured
/// below one row within their spread.
#[must_use]
pub fn at_least_one_row(mut verify_us: Vec<f64>) -> Vec<f64> {
    let one = verify_us.first().copied().unwrap_or(0.0);
    verify_us.iter_mut().for_each(|us| *us = us.max(one));
    verify_us
}

#[cfg(test)]
mod tests {
    use super::super::fixture::first_turn;
    use super::*;
    use crate::fixture::fold;
    use crate::fold::Session;

    #[test]
    fn costs_are_ratios_of_passes_next_to_each_other() {
        let session = fold(&first_turn().events);
        let costs = PassCosts::of(session.turn().unwrap()).unwrap();
        let four = costs.rows(4).unwrap();
        assert_eq!((four.rows, four.count), (4, 7));
        assert!((four.ratio - 1.25).abs() < 1e-12 && (four.us - 13_500.0).abs() < 1e-6, "{four:?}");
        assert_eq!((costs.rows(1).unwrap().us, costs.rows(2)), (10_800.0, None));
        assert!((costs.draft_us - 900.0).abs() < 1e-9 && (costs.overhead_us - 700.0).abs() < 1e-9, "{costs:?}");
        let account = costs.costs().unwrap();
        assert_eq!(account.verify_us.len(), 4);
        assert!((account.verify_us[1] - 11_700.0).abs() < 1e-6, "between one row and four: {account:?}");
        assert!(Session::new().turn().is_none());
    }

    #[test]
    fn a_block_costs_one_pass_whatever_k_is() {
        let mut script = first_turn();
        for event in &mut script.events {
            if let draftscope_protocol::EventKind::Drafted(draftscope_protocol::Drafted {
                index, more, took_us, ..
            }) = &mut event.kind
            {
                (*more, *took_us) = (*index < 2, if *index == 0 { 2680 } else { 10 });
            }
        }
        let session = fold(&script.events);
        let costs = PassCosts::of(session.turn().unwrap()).unwrap();
        assert!((costs.draft_us - 10.0).abs() < 1e-6 && (costs.draft_pass_us - 2670.0).abs() < 1e-6, "{costs:?}");
        assert!((costs.costs().unwrap().drafting_us(1) - 2680.0).abs() < 1e-6, "one draft costs the pass too");
    }

    /// Costs with one width of this ratio beside one row.
    fn with_width(ratio: f64, (low, high): (f64, f64), has_ceiling: bool) -> PassCosts {
        let one = PassCost { rows: 1, count: 9, ratio: 1.0, low: None, high: None, us: 1000.0, device_us: None };
        let wide = PassCost { rows: 3, ratio, low: Some(low), high: Some(high), us: ratio * 1000.0, ..one };
        let widths = vec![one, wide];
        PassCosts { widths, unmeasured: Vec::new(), draft_us: 50.0, draft_pass_us: 0.0, overhead_us: 10.0, has_ceiling }
    }

    #[test]
    fn nothing_follows_from_a_pass_that_is_cheaper_than_one_row_where_that_is_impossible() {
        let near = with_width(0.97, (0.93, 1.01), true);
        assert_eq!(near.impossible(), None);
        assert_eq!(near.costs().unwrap().verify_us, [1000.0; 3], "the bound, also between the widths");
        let below = with_width(0.81, (0.78, 0.84), true);
        assert_eq!(below.impossible().map(|cost| cost.rows), Some(3));
        assert_eq!(below.costs(), None);
        let device = with_width(0.81, (0.78, 0.84), false);
        assert_eq!(device.impossible(), None, "a wider pass may be cheaper there");
        assert!(device.costs().unwrap().verify_us[2] < 1000.0);
    }
}
