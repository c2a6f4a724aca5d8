//! The device: adapters, an open one with its buffers and pipelines, and counts of what it did.
//!
//! Knows what kernels bind, and no weights or passes.

mod adapter;
mod gpu;
mod open_device;
mod quiet;
mod subgroup;
mod work;

#[cfg(test)]
pub(crate) use adapter::tests::info as test_info;
pub use adapter::{Adapter, AdapterInfo, AdapterKind, adapters, choose, first_gpu};
pub use gpu::Gpu;
pub use open_device::wait_until_closed;
pub use work::Work;
