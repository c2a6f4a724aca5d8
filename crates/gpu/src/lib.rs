//! The arithmetic of draftscope's GPU backend: WGSL kernels on wgpu (Vulkan, Metal, DirectX 12), the buffers they work
//! on, and the recording of passes over transformers of the Llama kind and their draft modules.
//!
//! Two invariants hold for every kernel. A row's result does not depend on the rows that run with it: sums are cut and
//! joined by absolute positions, never by the number of rows. This makes greedy speculation equal plain decoding on the
//! same device; [`self_test()`] checks it on the adapter at hand. And no kernel assumes a subgroup width, halves in
//! shaders, or any other optional feature; sums use shuffles where a device was seen to join neighbours by them.
//!
//! Drivers are loaded when [`adapters`] is called; nothing is linked.
//!
//! Rooms, each knowing only those before it: `forms` (weights as shaders read them), `kernels` (the shaders), `device`,
//! `weights` (a model as data), `memory` (the other buffers), `launches` (kernels of a block), `passes` (sequences), `measure`.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod device;
mod error;
mod forms;
mod kernels;
mod launches;
mod measure;
mod memory;
mod passes;
#[cfg(test)]
mod tests;
mod weights;

pub use device::{Adapter, AdapterInfo, AdapterKind, Gpu, Work, adapters, choose, first_gpu, wait_until_closed};
pub use error::{DRIVER_ADVICE, GpuError};
pub use forms::{Form, PackedRows};
pub use kernels::{Kernel, MAX_ROWS, PROMPT_ROWS, PassRows, ROWS_AT_ONCE, SEGMENT, Store, TILE, Variant};
pub use measure::{Difference, KernelTime, self_test};
pub use passes::{
    Ahead, BEST, Logits, MAX_AHEAD, MAX_SLOTS, ModuleOutput, ModuleSequence, Output, Request, STRETCH, Scored,
    Sequence, Slots, Stretch,
};
pub use weights::{
    BlockWeights, DeltaShape, DeltaWeights, EndStyle, LayerInput, LayerTable, MAX_HEAD_DIM, MAX_KEY_DIM, Matrix,
    ModuleWeights, Network, Shape, StoredRows, Style,
};
pub use wgpu::Buffer;
