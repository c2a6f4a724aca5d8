//! Where a target is loaded: on the device that the options name, or on the faster one.

#[cfg(feature = "gpu")]
use super::auto_device;
use super::backend::{OnBackend, load_elsewhere, load_gpu};
use super::dtype::check_dtype;
use crate::ModelError;
use crate::interfaces::{LoadContext, Progress};
use crate::options::DeviceChoice;

/// Loads the target where the options say.
///
/// # Errors
/// If the backend does not run it, memory is short, or a file is damaged.
pub(super) fn load_target(context: &LoadContext<'_>, progress: &mut Progress<'_>) -> Result<OnBackend, ModelError> {
    let LoadContext { options, source, .. } = *context;
    check_dtype(options.dtype, source)?;
    match options.device {
        DeviceChoice::Gpu => return load_gpu(context, options.adapter.as_deref(), progress),
        _ if options.adapter.is_some() => {
            return Err(ModelError::Unsupported("--adapter names a GPU; add --device gpu".into()));
        }
        #[cfg(feature = "gpu")]
        DeviceChoice::Auto => return auto_device::load(context, progress),
        _ => {}
    }
    load_elsewhere(context, progress)
}
