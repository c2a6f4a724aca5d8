//! An MTP module that comes in a file of its own, for targets of the Llama kind.

pub mod file;
mod native;
mod native_file;

use crate::model::drafters::core::{self, CandleMtp, Figures};
use crate::model::interfaces::{Modules, SharedWeights};
use crate::model::native::NativeMtp;
use crate::model::options::ModuleFile;
use crate::model::{Model, ModelError};

use self::file::MtpConfig;

/// Loads the module, or the stack of them, beside its target.
///
/// # Errors
/// When a tensor is missing, misshapen or damaged, or the module was made for another target.
pub fn load(module: &ModuleFile, target: &SharedWeights<'_>) -> Result<Modules, ModelError> {
    let config = MtpConfig::from_json(&module.config)?;
    let depths = 0..config.num_nextn_predict_layers;
    let info = |figures: Figures<'_>| {
        let mut info = figures.info(module.name.clone());
        info.sha256.clone_from(&module.sha256);
        info
    };
    let (draft_vocab, context_vocab) = (config.draft_vocab_size, config.context_vocab_size);
    match target {
        SharedWeights::Native(target) => {
            config.check_target(&target.spec().info)?;
            let modules = depths.map(|depth| NativeMtp::load_depth(&module.weights, &config, target, depth));
            let modules = modules.collect::<Result<Vec<_>, _>>()?;
            let figures = Figures {
                dtype: modules.first().map_or("none", NativeMtp::dtype),
                weight_bytes: modules.iter().map(|module| module.weight_bytes() as u64).sum(),
                kv_bytes_per_token: modules.iter().map(NativeMtp::kv_bytes_per_token).sum(),
                draft_vocab,
                context_vocab,
            };
            Ok(core::modules(modules, info(figures)))
        }
        SharedWeights::Candle(target, ctx_len) => {
            let modules =
                depths.map(|depth| CandleMtp::load_depth((&module.weights, depth), &config, target, *ctx_len));
            let modules = modules.collect::<Result<Vec<_>, _>>()?;
            let figures = Figures {
                dtype: "f32",
                weight_bytes: modules.iter().map(CandleMtp::bytes).sum(),
                kv_bytes_per_token: modules.iter().map(CandleMtp::kv_bytes_per_slot).sum(),
                draft_vocab,
                context_vocab,
            };
            Ok(core::modules(modules, info(figures)))
        }
    }
}
