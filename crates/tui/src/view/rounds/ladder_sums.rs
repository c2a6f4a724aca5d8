//! The sums of the rounds in the ladder's list.
//!
//! Invariant: the line below the list and the title above it are about the listed rounds, and about no others.

use draftscope_session::LaneStats;
use draftscope_session::round_at::{RoundAt, round_at};

use crate::app::place::filter::Filter;
use crate::view::prelude::*;

/// Sums, and which rounds they are of.
pub(super) struct Sums {
    pub(super) stats: LaneStats,
    /// Whether the list has other rounds than the turn on show.
    pub(super) has_others: bool,
    /// What the line is called.
    pub(super) name: &'static str,
}

impl Sums {
    pub(super) fn of(screen: Screen, found: &[RoundAt]) -> Self {
        let is_all = screen.app.place.filter == Filter::All;
        let stats = match is_all {
            true => screen.session.stats(Lane::Speculative),
            false => LaneStats::of_rounds(found.iter().filter_map(|at| round_at(screen.session, *at))),
        };
        let has_others = !is_all || screen.session.turns().len() > 1;
        Self { stats, has_others, name: if is_all { "  all" } else { "listed" } }
    }
}
