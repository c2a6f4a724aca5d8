//! What happened, folded from events: turns, rounds, tokens with their provenance, statistics.
//!
//! Invariant: [`Session::apply`] is a pure and total fold. It reads no clock and does no I/O, takes any event in any order
//! (a torn trace, a newer writer, two interleaved lanes) and never panics; the same events always give the same session.
//! Where a user looks (scroll, selection, focus) is the front end's business, and so is every colour.

mod accepted_series;
mod accessors;
pub mod account;
mod align;
mod answer_thought;
mod by_context;
mod calibration;
mod chosen;
pub mod classes;
mod compare;
mod contradiction;
mod copies;
mod diff;
mod disturbance;
mod draft_choice;
mod draft_vocab;
mod draw;
pub mod drive;
mod estimator;
mod fate;
mod findings;
#[doc(hidden)]
pub mod fixture;
mod fleet;
mod fold;
mod header_diff;
mod kept_rounds;
mod lane_parts;
mod loading;
mod marking;
mod marks;
mod measured_costs;
mod memo;
mod moment;
mod most_tokens;
mod notices;
mod old_turns;
mod partial;
mod pass_costs;
mod phase;
mod plain_answer;
mod position;
pub mod probe;
mod recount;
mod reported;
mod round;
pub mod round_at;
mod round_clock;
pub mod sent_prompt;
mod settings_span;
mod settled;
mod slots;
mod span_figures;
mod speed_series;
mod speedup;
mod stats;
mod stretches;
mod sums;
pub mod text;
mod thought;
mod timeline;
pub mod trace;
mod transcript;
mod turn;
mod turn_measured;
mod turn_speedup;
mod what_if;

pub use accepted_series::ACCEPTED_WINDOW;
pub use align::{Pair, align};
pub use by_context::ContextSlice;
pub use calibration::{Calibration, Q_RANGES, QRange};
pub use chosen::ChosenDraftLen;
pub use compare::{Agreement, Divergence, Race};
pub use contradiction::Evidence;
pub use copies::Copies;
pub use diff::{Diff, FirstDifference, Side, TurnDiff};
pub use draftscope_protocol::statistics::Interval;
pub use draw::draw_for;
pub use fate::{Fate, Provenance};
pub use findings::{Finding, NEAR_TIE, explain};
pub use fleet::{Alert, Fired, Fleet, Latency, Rates, Share, WatchLine, Watched};
pub use fold::Session;
pub use header_diff::{HeaderDifference, header_diff};
pub use kept_rounds::{FULL_ROUNDS, LISTED_ROUNDS};
pub use lane_parts::by_context;
pub use loading::Loading;
pub use marks::{MAX_MARKS, Mark, PassId};
pub use moment::{Moment, Stop};
pub use notices::MAX_NOTICES;
pub use pass_costs::{PassCost, PassCosts, at_least_one_row, has_ceiling};
pub use phase::Phase;
pub use position::{Facts, Residual, facts, residual};
pub use round::Round;
pub use settings_span::SettingsSpan;
pub use slots::Slot;
pub use speed_series::SpeedPoint;
pub use speedup::{DISTURBED, Figure, Speedup, Trust, WINDOW};
pub use stats::LaneStats;
pub use thought::PartStats;
pub use timeline::{Timeline, TurnSpan};
pub use transcript::TranscriptToken;
pub use turn::{Answer, Token, Turn};
pub use what_if::{Reply, WhatIf, what_if};

#[cfg(test)]
mod noise;

#[cfg(test)]
mod tests;
