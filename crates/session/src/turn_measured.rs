//! What is computed of a turn on demand and kept: spans, pass costs and series.

use super::memo::Memo;
use super::pass_costs::PassCosts;
use super::settings_span::SettingsSpan;

/// Speedups of a turn, computed once.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Measured {
    /// The spans of the answer, each under its own settings; empty before the first round.
    pub(super) spans: Vec<SettingsSpan>,
    pub(super) passes: Option<PassCosts>,
    /// Speedup over time; computed for one page only.
    pub(super) series: Memo<Vec<(u64, f64)>>,
    /// The clock after each round; computed for curves only.
    pub(super) clock: Memo<Vec<u64>>,
    /// The share of drafts accepted over time; computed for one page only.
    pub(super) accepted: Memo<Vec<(u64, f64)>>,
}
