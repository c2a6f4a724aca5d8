//! The Speed page: the speedup, where the time goes, and what the models take in memory.

pub(super) mod accepted;
pub(super) mod calibration;
pub(super) mod context;
pub(super) mod costs;
pub(super) mod hero;
pub(super) mod memory;
pub(super) mod per_round;
pub(super) mod positions;
pub(super) mod speed_page;
pub(super) mod speed_summary;
pub(super) mod speedup;
pub(super) mod times;
pub(super) mod worths;
