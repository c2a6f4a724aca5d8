//! The native CPU backend: a target and a draft module over hand-written kernels.
//!
//! It exists because checking k tokens costs little more than making one only if weights stream from memory once for
//! all rows, which common CPU software does not do. Invariant: the bits of a row depend only on the tokens before it:
//! not on the rows beside it, on threads or on the instruction set. So greedy speculation equals plain decoding, to the
//! bit. Callers decide which backend runs and how many threads.

pub(in crate::model) mod account;
mod answers;
pub(in crate::model) mod attention;
pub(in crate::model) mod batch;
pub(in crate::model) mod cache;
pub(in crate::model) mod delta;
pub(in crate::model) mod delta_state;
pub(in crate::model) mod draft_head;
pub(in crate::model) mod experts;
pub(in crate::model) mod feed;
pub(in crate::model) mod fuse;
pub(in crate::model) mod gate_up;
pub(in crate::model) mod head;
pub(in crate::model) mod heads;
pub(in crate::model) mod hidden_tap;
pub(in crate::model) mod history;
mod latent;
mod latent_attend;
pub(in crate::model) mod layer;
pub(in crate::model) mod linear;
pub(in crate::model) mod llama;
pub(in crate::model) mod load;
mod load_feed;
mod load_latent;
mod load_mixer;
pub(in crate::model) mod matrix;
pub(in crate::model) mod mixer;
pub(in crate::model) mod module;
pub(in crate::model) mod mtp;
pub(in crate::model) mod normer;
mod own_module;
pub(in crate::model) mod pack;
pub(in crate::model) mod parts;
pub(in crate::model) mod pass;
#[cfg(test)]
mod plan_test;
pub(in crate::model) mod read_ahead;
pub(in crate::model) mod recurrent;
mod router;
pub(in crate::model) mod rule;
pub(in crate::model) mod tensors;
#[cfg(test)]
pub(in crate::model) mod testing;
pub(in crate::model) mod threads;
pub(in crate::model) mod transpose;
pub(in crate::model) mod tree;
mod weights;

pub use batch::{BATCH_ROWS, BatchForward, BatchRow, NativeBatch};
pub use linear::{NativeCpu, NativeLinear};
pub use llama::NativeLlama;
pub use load::Source;
pub use mtp::MtpStorage;
pub(in crate::model) use mtp::NativeMtp;
pub(in crate::model) use own_module::OwnHeads;
pub(in crate::model) use parts::runs;
