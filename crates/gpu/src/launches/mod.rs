//! From weights and buffers to launches: which kernels run a block, in which order, with which dimensions.
//!
//! Launches are bound once, with a sequence. Knows no tokens, and not when a pass runs.

mod binder;
mod block;
mod delta;
mod layer_inputs;
mod op;

pub(crate) use binder::Binder;
pub(crate) use op::{Op, launch};
