//! The GPU backend: targets and MTP modules on the kernels of `crates/gpu`, loaded from a [plan](crate::plan).
//! `parts.rs` lists what the kernels run.
//!
//! Invariant: as on the native CPU backend, the bits of a row depend only on the tokens before it, not on the rows beside
//! it, so greedy speculation equals plain decoding on the same device. A self-test checks this on the adapter at hand when
//! a target is loaded; if it fails, rows are verified one by one. Bits differ from device to device.

pub(crate) mod device;
mod layer;
pub(crate) mod load;
mod load_module;
pub(crate) mod module;
pub(crate) mod parts;
mod stats;
pub(crate) mod target;
pub(crate) mod uploader;

pub use draftscope_gpu::{AdapterInfo, AdapterKind, DRIVER_ADVICE, first_gpu};
pub use parts::RUNS;
pub use target::GpuTarget;

/// The device of the adapter with this name or number, opened once for all models.
///
/// # Errors
/// [`ModelError::Unsupported`](crate::ModelError) if there is no such adapter, or it cannot run the kernels.
pub fn opened(adapter: Option<&str>) -> Result<std::sync::Arc<draftscope_gpu::Gpu>, crate::ModelError> {
    device::open(adapter)
}

/// The adapters of this machine, GPUs first; `--adapter` names one by its index. Loads the drivers.
#[must_use]
pub fn adapters() -> Vec<AdapterInfo> {
    draftscope_gpu::adapters().into_iter().map(|adapter| adapter.info).collect()
}
