//! What an engine's plugin sends over a socket: each verification step whole, as lines of the trace format.
//!
//! The plugin listens; draftscope connects, and connects again when it is gone. Lines are somebody else's: each is bounded,
//! read as an event and checked against the other lines of its round before anything of it is shown. What contradicts
//! itself is left out with one sentence.

pub mod address;
mod check;
mod fault;
mod feed;
pub(super) mod join;
mod lines;
mod read;
pub(super) mod round;
mod store;

pub use check::{Report, check};
pub use fault::Fault;
pub use feed::Feed;
pub use lines::{Collector, Said};
pub use read::{LineReader, MAX_LINE, connect_within};
pub use round::Round;
