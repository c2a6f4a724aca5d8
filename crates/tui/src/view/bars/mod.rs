//! The lines above and below a page: what runs, the pages, the place in time, keys and what is typed.

pub(super) mod footer;
pub(super) mod input_line;
pub(super) mod player;
pub(super) mod round_scale;
pub(super) mod search;
pub(super) mod status;
pub(super) mod tabs;
pub(super) mod time;
