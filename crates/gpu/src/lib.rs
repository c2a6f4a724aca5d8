//! The arithmetic of draftscope's GPU backend: WGSL kernels on wgpu (Vulkan, Metal, DirectX 12), the buffers they work
//! on, and the recording of passes over transformers of the Llama kind and their draft modules.
//!
//! Two invariants hold for every kernel. A row's result does not depend on the rows that run with it: sums are cut and
//! joined by absolute positions, never by the number of rows. This makes greedy speculation equal plain decoding on the
//! same device; [`self_test()`] checks it on the adapter at hand. And no kernel assumes a subgroup width, halves in
//! shaders, or any other optional feature; sums use shuffles where a device was seen to join neighbours by them.
//!
//! Drivers are loaded when [`adapters`] is called; nothing is linked.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod adapter;
mod block;
mod blocks;
mod buffers;
mod delta;
mod device;
mod error;
mod form;
mod form_source;
mod head;
mod kernel;
mod layer_inputs;
mod layout;
mod matrix;
mod module;
mod network;
mod op;
mod open_device;
mod packed;
mod pass;
mod profile;
mod quiet;
mod read_rate;
mod recording;
mod recurrent;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod reference_delta;
mod request;
mod self_test;
mod style;
mod subgroup;
#[cfg(test)]
mod tests;
mod work;

pub use adapter::{Adapter, AdapterInfo, AdapterKind, adapters, choose, first_gpu};
pub use block::{BlockWeights, MAX_HEAD_DIM, Shape};
pub use delta::{DeltaShape, DeltaWeights, MAX_KEY_DIM};
pub use device::Gpu;
pub use error::{DRIVER_ADVICE, GpuError};
pub use form::Form;
pub use head::{BEST, Logits, STRETCH, Scored, Stretch};
pub use kernel::{Kernel, ROWS_AT_ONCE, TILE, Variant};
pub use layer_inputs::{LayerInput, LayerTable};
pub use matrix::{Matrix, StoredRows};
pub use module::{Ahead, MAX_AHEAD, MAX_SLOTS, ModuleOutput, ModuleSequence, ModuleWeights, Slots};
pub use network::{Network, Sequence};
pub use open_device::wait_until_closed;
pub use packed::PackedRows;
pub use pass::{MAX_ROWS, PROMPT_ROWS, PassRows, SEGMENT, Store};
pub use profile::KernelTime;
pub use request::{Output, Request};
pub use self_test::{Difference, self_test};
pub use style::{EndStyle, Style};
pub use wgpu::Buffer;
pub use work::Work;
