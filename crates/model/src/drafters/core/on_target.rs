//! What a module takes from its target, wherever that runs.

use crate::ModelError;
use crate::interfaces::{LoadContext, SharedWeights};
use crate::native::ModuleTarget;
use crate::options::Dtype;

/// A target as modules on the native kernels see it; `what` they are is for messages.
///
/// # Errors
/// [`ModelError::Unsupported`] for a target on a GPU.
pub(crate) fn on_kernels(
    shared: &SharedWeights<'_>,
    context: &LoadContext<'_>,
    what: &str,
) -> Result<ModuleTarget, ModelError> {
    match shared {
        SharedWeights::Native(target) => Ok(ModuleTarget::of(target)),
        #[cfg(feature = "gpu")]
        SharedWeights::Gpu(_) => Err(ModelError::Unsupported(format!(
            "{what} do not run on the GPU yet; choose --device cpu, or another drafter"
        ))),
        SharedWeights::Candle(_, ctx_len) => {
            let target = (context.source, context.config.transformer(), context.config.plan());
            let in_f32 = matches!(context.options.dtype, Dtype::Auto | Dtype::F32);
            ModuleTarget::beside(target, (*ctx_len, in_f32), context.options.threads)
        }
    }
}
