//! The Compare page: the answers of the lanes side by side, and their figures.

pub(super) mod agreement;
pub(super) mod aligned;
pub(super) mod aligned_layout;
pub(super) mod lane_title;
pub(super) mod table;
