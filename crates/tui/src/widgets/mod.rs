//! Reusable parts that know nothing of a session: flowing text, Markdown, table cells, bars, plots, large digits.
//!
//! Invariant: each is a value with `render(area, buf)` or a function that returns lines; it draws inside its area only,
//! and does nothing on an empty one.

pub(super) mod area_plot;
pub(super) mod bars;
pub(super) mod cell;
pub(super) mod digits;
pub(super) mod flow;
pub(super) mod markdown;
mod open_markdown;
