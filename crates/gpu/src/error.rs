//! Errors of the device, with messages that say what to do.

/// Why the device cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// No driver offers an adapter.
    #[error(
        "no GPU can be used: no Vulkan, Metal or DirectX 12 driver was found; install your GPU's driver (on Linux its Vulkan driver, e.g. the package mesa-vulkan-drivers), or choose --device cpu"
    )]
    NoAdapter,
    /// Only adapters that compute on the CPU.
    #[error(
        "no GPU can be used: the only adapter is '{0}', which computes on the CPU; name it with --adapter to use it, or choose --device cpu"
    )]
    OnlySoftware(String),
    /// No adapter has this name or number.
    #[error("no adapter is named '{wanted}'; there are: {there}")]
    UnknownAdapter {
        /// What was asked for.
        wanted: String,
        /// Numbers and names of the adapters.
        there: String,
    },
    /// The adapter lacks something that the kernels need.
    #[error("the adapter '{name}' cannot run the kernels: {lacks}; choose another with --adapter, or --device cpu")]
    Unsuitable {
        /// Its name.
        name: String,
        /// What it lacks.
        lacks: String,
    },
    /// Memory for weights or caches could not be allocated.
    #[error("the GPU has no memory left ({0}); choose a smaller model or --ctx, or --device cpu")]
    OutOfMemory(String),
    /// The device stopped working, or the driver reported an error.
    #[error("the GPU stopped working ({0}); update its driver, or choose --device cpu")]
    Failed(String),
}
