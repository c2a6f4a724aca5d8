//! Batch generation: the target's own answers to many prompts, with their hidden states, as training data for a draft
//! module.
//!
//! It uses the same arithmetic as inference. Up to sixteen conversations share a pass over the weights; when one ends,
//! the next task takes its slot. Invariant: the output of a task depends only on its line and the model, not on the
//! tasks that run beside it. So shards may be made in any order, by several processes, and repeatedly. The training
//! itself is in `training/`.

mod error;
mod frame;
mod run;
mod sequence;
mod shard;
mod task;

pub use error::GenerateError;
pub use frame::Frame;
pub use run::{Generator, Part, Progress};
pub use sequence::Role;
pub use shard::{FORMAT_VERSION, Plan};
pub use task::{Task, TaskFile, UserTurn};
