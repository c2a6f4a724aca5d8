//! Time: how fast an answer proceeds, how a recording plays, the tour's ticks.

pub(crate) mod pace;
pub(crate) mod pacing;
pub(crate) mod playback;
pub(crate) mod tour;
