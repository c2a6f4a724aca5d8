//! Errors of the device, with messages that say what to do.

/// How to get a driver on this system: one sentence without its first capital and its full stop.
pub const DRIVER_ADVICE: &str = advice(std::env::consts::OS);

/// The advice for a system, as the standard library names it.
const fn advice(system: &str) -> &str {
    match system.as_bytes() {
        b"linux" => {
            "install your GPU's Vulkan driver: for AMD and Intel the package mesa-vulkan-drivers (Arch: vulkan-radeon or vulkan-intel), for NVIDIA its own driver with Vulkan (Debian: nvidia-driver and nvidia-vulkan-icd; in a container also NVIDIA_DRIVER_CAPABILITIES=all)"
        }
        b"macos" => "Metal belongs to the system, so this Mac, or this virtual machine, has no GPU that Metal can use",
        b"windows" => "install your GPU's driver from its manufacturer: it brings DirectX 12 and Vulkan",
        _ => "install your GPU's Vulkan driver",
    }
}

/// Why the device cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// No driver offers an adapter.
    #[error(
        "no GPU can be used: no Vulkan, Metal or DirectX 12 driver was found; {DRIVER_ADVICE}, or choose --device cpu"
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
    /// A context or a draft head is larger than a kernel on the adapter can see.
    #[error(
        "{what} needs {} MB in one piece, and this GPU allows {} MB; choose {smaller}, or --device cpu",
        bytes.div_ceil(1_000_000), most / 1_000_000
    )]
    TooLarge {
        /// The context or the head.
        what: String,
        /// Bytes that it needs.
        bytes: u64,
        /// Bytes that the adapter allows.
        most: u64,
        /// What fits, as an option.
        smaller: String,
    },
    /// Memory for weights or caches could not be allocated.
    #[error("the GPU has no memory left ({0}); choose a smaller model or --ctx, or --device cpu")]
    OutOfMemory(String),
    /// The device stopped working, or the driver reported an error.
    #[error("the GPU stopped working ({0}); update its driver, or choose --device cpu")]
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_system_is_given_advice_of_its_own() {
        let all = ["linux", "macos", "windows", "freebsd"].map(advice);
        assert!(all[0].contains("mesa-vulkan-drivers") && all[0].contains("nvidia"));
        assert!(all[1].contains("Metal") && all[2].contains("DirectX 12") && all[3].contains("Vulkan"));
        let text = GpuError::NoAdapter.to_string();
        assert!(text.contains(DRIVER_ADVICE) && text.ends_with("or choose --device cpu"), "{text}");
    }
}
