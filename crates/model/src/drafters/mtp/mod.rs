//! An MTP module in a file of its own, for targets of the Llama kind.

mod candle;
pub mod config;
mod file;
#[cfg(feature = "gpu")]
mod gpu;
mod native;

use crate::drafters::core::{self, CandleMtp};
#[cfg(feature = "gpu")]
use crate::gpu::module::GpuMtp;
use crate::interfaces::{Modules, SharedWeights};
use crate::native::{MtpStorage, NativeMtp};
use crate::options::ModuleFile;
use crate::{Model, ModelError};

use self::config::MtpConfig;

/// Loads the module, or the stack of modules, for its target.
///
/// # Errors
/// If a tensor is missing, has a wrong shape or is damaged, or the module was made for another target.
pub fn load(module: &ModuleFile, target: &SharedWeights<'_>) -> Result<Modules, ModelError> {
    let config = MtpConfig::from_json(&module.config)?;
    let depths = 0..config.num_nextn_predict_layers;
    let name = module.name.clone();
    let (modules, mut info) = match target {
        SharedWeights::Native(target) => {
            config.check_target(&target.spec().info)?;
            let modules =
                depths.map(|depth| NativeMtp::load((&module.weights, depth), &config, target, MtpStorage::default()));
            let modules = modules.collect::<Result<Vec<_>, _>>()?;
            let dtype = modules.first().map_or("none", NativeMtp::dtype);
            core::modules(modules, name, dtype)
        }
        #[cfg(feature = "gpu")]
        SharedWeights::Gpu(target) => {
            config.check_target(&target.spec().info)?;
            let modules = depths.map(|depth| GpuMtp::load((&module.weights, depth), &config, target));
            core::modules(modules.collect::<Result<Vec<_>, _>>()?, name, "q4_1")
        }
        SharedWeights::Candle(target, ctx_len) => {
            let modules = depths.map(|depth| CandleMtp::load((&module.weights, depth), &config, target, *ctx_len));
            core::modules(modules.collect::<Result<Vec<_>, _>>()?, name, "f32")
        }
    };
    info.context_vocab = config.context_vocab_size as u64;
    info.sha256.clone_from(&module.sha256);
    Ok((modules, info))
}
