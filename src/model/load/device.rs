//! Where a model runs.

use candle_core::Device;

use crate::model::ModelError;

/// Where a model runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The first GPU this build can use, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The first CUDA device.
    Cuda,
    /// The first Metal device.
    Metal,
}

impl DeviceChoice {
    /// Opens the device.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] saying what to build or plug in.
    pub fn open(self) -> Result<Device, ModelError> {
        let unavailable = |name: &str, error: &dyn std::fmt::Display| {
            ModelError::Unsupported(format!(
                "no {name} device can be used ({error}); build with `--features {name}` or choose --device cpu"
            ))
        };
        match self {
            Self::Cpu => Ok(Device::Cpu),
            Self::Cuda => Device::new_cuda(0).map_err(|error| unavailable("cuda", &first_line(&error))),
            Self::Metal => Device::new_metal(0).map_err(|error| unavailable("metal", &first_line(&error))),
            Self::Auto => Ok(Device::new_cuda(0).or_else(|_| Device::new_metal(0)).unwrap_or(Device::Cpu)),
        }
    }
}

fn first_line(error: &candle_core::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}
