//! The Inspect page: one position as bars and in numbers.

pub(super) mod distributions;
pub(super) mod numbers;
