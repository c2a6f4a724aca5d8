//! MTP modules in files of their own, for targets of the Llama kind.

pub mod config;
mod file;
#[cfg(test)]
mod native_test;

use draftscope_kernels::Encoding;

use crate::drafters::core::{self, ModuleTensors};
#[cfg(feature = "gpu")]
use crate::gpu::{GpuTarget, module::GpuModule};
use crate::interfaces::{LoadContext, Modules, SharedWeights};
use crate::native::{DraftHead, ModuleTarget, NativeModule};
use crate::options::ModuleFile;
use crate::{Model, ModelError};
use draftscope_protocol::ModelInfo;

use self::config::MtpConfig;
use self::file::MtpFile;

/// Loads the module, or the stack of modules, for its target.
///
/// # Errors
/// If a tensor is missing, has a wrong shape or is damaged, or the module was made for another target.
pub fn load(module: &ModuleFile, target: &SharedWeights<'_>, context: &LoadContext<'_>) -> Result<Modules, ModelError> {
    let config = MtpConfig::from_json(&module.config)?;
    config.check_target(&info(target, context))?;
    let (depths, name, weights) = (0..config.num_nextn_predict_layers, module.name.clone(), &*module.weights);
    let (modules, mut info) = match target {
        #[cfg(feature = "gpu")]
        SharedWeights::Gpu(target) => {
            let modules = depths.map(|depth| on_gpu((weights, depth), &config, target));
            core::modules(modules.collect::<Result<Vec<_>, _>>()?, name, "q4_1")
        }
        _ => {
            let target = core::on_kernels(target, context, "MTP modules")?;
            let modules = depths.map(|depth| on_kernels((weights, depth), &config, &target));
            let modules = modules.collect::<Result<Vec<_>, _>>()?;
            let dtype = modules.first().map_or("none", NativeModule::dtype);
            core::modules(modules, name, dtype)
        }
    };
    info.context_vocab = config.context_vocab_size as u64;
    info.sha256.clone_from(&module.sha256);
    Ok((modules, info))
}

/// The target's sizes.
fn info(target: &SharedWeights<'_>, context: &LoadContext<'_>) -> ModelInfo {
    match target {
        SharedWeights::Native(target) => target.spec().info.clone(),
        #[cfg(feature = "gpu")]
        SharedWeights::Gpu(target) => target.spec().info.clone(),
        SharedWeights::Candle(..) => context.info(),
    }
}

/// The module of one depth of a stack, from 0, from the bytes of the safetensors file. Its head is the target's, trimmed.
fn on_kernels(
    (weights, depth): (&[u8], usize),
    config: &MtpConfig,
    target: &ModuleTarget,
) -> Result<NativeModule, ModelError> {
    let file = MtpFile::parse(weights)?;
    let vocab = file.draft_vocab(config.draft_vocab_size, target.weights.head.rows())?;
    let (head, tokens) = DraftHead::trimmed(&target.weights, vocab, (config.context_vocab_size, target.exact))?;
    let bytes = head.bytes();
    let tensors = ModuleTensors::new(&file, target.exact, Encoding::Q4_1);
    NativeModule::load(target, (&tensors, &config.plan(depth)), (head, tokens, bytes))
}

#[cfg(feature = "gpu")]
fn on_gpu(
    (weights, depth): (&[u8], usize),
    config: &MtpConfig,
    target: &GpuTarget,
) -> Result<crate::module_core::ModuleCore<GpuModule>, ModelError> {
    let file = MtpFile::parse(weights)?;
    let vocab = file.draft_vocab(config.draft_vocab_size, target.network().head.rows())?;
    let tensors = ModuleTensors::new(&file, false, Encoding::Q4_1);
    GpuModule::load(target, (&tensors, &config.plan(depth)), Some((&vocab, config.context_vocab_size)))
}
