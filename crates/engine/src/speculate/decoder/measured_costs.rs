//! Costs as a run measured them, and how many rows and how much time that takes.

use std::time::Duration;

use draftscope_protocol::Costs;

/// Longest time of the measurement before the first answer.
pub const TIMING: Duration = Duration::from_millis(2_500);

/// Most rows that are timed: drafts of 8.
pub const TIMED_ROWS: usize = 9;

/// Measured costs.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredCosts {
    /// The costs.
    pub costs: Costs,
    /// Whether the machine's speed was steady, so that the costs are worth storing.
    pub is_steady: bool,
}
