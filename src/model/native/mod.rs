//! The native CPU backend: a target and a draft module over hand-written kernels.
//!
//! It exists because checking k tokens costs little more than making one only if weights stream from
//! memory once for all rows, which common CPU software does not do. Invariant: the bits of a row
//! depend on the tokens before it and on nothing else: not on the rows beside it, on threads or on the
//! instruction set. So greedy speculation equals plain decoding, to the bit. Which backend runs, and
//! how many threads pay, is decided by callers.

mod batch;
mod cache;
mod draft_head;
mod eagle;
mod eagle_file;
mod fuse;
mod gate_up;
mod head;
pub mod kernel;
mod layer;
mod linear;
mod llama;
mod load;
mod matrix;
mod mtp;
mod mtp_file;
mod normer;
mod states;
mod tensors;
#[cfg(test)]
mod testing;
mod threads;
mod tree;
mod turn;

pub use batch::{BATCH_ROWS, BatchForward, BatchRow, NativeBatch};
pub use eagle::NativeEagle;
pub use linear::{NativeCpu, NativeLinear};
pub use llama::NativeLlama;
pub use mtp::{MtpStorage, NativeMtp};
