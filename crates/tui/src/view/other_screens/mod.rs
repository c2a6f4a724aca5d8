//! The screens without a run: two recordings compared, and watched servers.

pub(super) mod diff;
pub(super) mod fleet;
pub(super) mod fleet_detail;
