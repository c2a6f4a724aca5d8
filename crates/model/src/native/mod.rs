//! The native CPU backend: a target and a draft module over hand-written kernels.
//!
//! It exists because checking k tokens costs little more than making one only if weights stream from memory once for
//! all rows, which common CPU software does not do. Invariant: the bits of a row depend only on the tokens before it:
//! not on the rows beside it, on threads or on the instruction set. So greedy speculation equals plain decoding, to the
//! bit. Callers decide which backend runs and how many threads.

pub(crate) mod account;
mod answers;
mod assistant;
mod assistant_head;
pub(crate) mod attention;
pub(crate) mod batch;
mod block_attention;
mod block_module;
pub(crate) mod cache;
mod convolution;
pub(crate) mod delta;
pub(crate) mod delta_state;
pub(crate) mod draft_head;
pub(crate) mod experts;
pub(crate) mod feed;
pub(crate) mod gate_up;
pub(crate) mod head;
pub(crate) mod heads;
pub(crate) mod hidden_tap;
pub(crate) mod history;
mod inputs;
mod latent;
mod latent_attend;
pub(crate) mod layer;
pub(crate) mod llama;
pub(crate) mod load;
mod load_feed;
mod load_inputs;
mod load_latent;
mod load_mixer;
pub(crate) mod matrix;
pub(crate) mod mixer;
pub(crate) mod module;
mod module_entry;
mod module_target;
mod module_weights;
pub(crate) mod normer;
mod open;
mod own_module;
pub(crate) mod pack;
pub(crate) mod parts;
pub(crate) mod pass;
#[cfg(test)]
mod plan_test;
pub(crate) mod read_ahead;
pub(crate) mod recurrent;
pub(crate) mod router;
pub(crate) mod rule;
mod selector;
pub(crate) mod tensors;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod threads;
pub(crate) mod transpose;
pub(crate) mod tree;
mod weights;

pub(crate) use assistant::NativeAssistant;
pub use batch::{BATCH_ROWS, BatchForward, BatchRow, NativeBatch};
pub(crate) use block_module::NativeBlock;
pub(crate) use draft_head::DraftHead;
pub use llama::NativeLlama;
pub use load::Source;
pub(crate) use module::NativeModule;
pub(crate) use module_target::ModuleTarget;
pub(crate) use own_module::OwnHeads;
pub(crate) use parts::check;
