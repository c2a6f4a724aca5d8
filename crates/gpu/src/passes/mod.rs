//! Sequences: passes over a target or a draft module, recorded, submitted and read, each with a cache of its own.
//!
//! Knows tokens, rollback and forks, and which launches a pass needs; what they compute is said below it.

mod head;
mod module;
mod recording;
mod recurrent;
mod request;
mod sequence;

pub use head::{BEST, Logits, STRETCH, Scored, Stretch};
pub use module::{Ahead, MAX_AHEAD, MAX_SLOTS, ModuleOutput, ModuleSequence, Slots};
pub(crate) use recording::{Readback, Recording};
pub use request::{Output, Request};
pub use sequence::Sequence;
