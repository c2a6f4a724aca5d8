//! The buffers of a sequence besides weights: what a pass writes between launches, and what it keeps for the next one.
//!
//! Knows the sizes of blocks, and no launches.

mod cache;
mod scratch;

pub(crate) use cache::{DeltaMemory, KEPT_ROWS, LayerCache, copy_caches, move_rows};
pub(crate) use scratch::{Acts, Scratch};
