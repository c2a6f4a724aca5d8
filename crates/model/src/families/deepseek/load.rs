//! Loading the draft modules in the files of a model of DeepSeek-V3's layout.

use crate::ModelError;
use crate::drafters::core::{NextnTarget, nextn_modules};
use crate::families::deepseek::DeepSeekWeights;
use crate::families::deepseek::names::article;
use crate::families::deepseek::reader::Reader;
use crate::interfaces::{CandleFamily, CandleTarget, LoadContext, Modules, NoSharing, SharedWeights};
use crate::nn::{Tensors, TransformerConfig};

impl CandleFamily for DeepSeekWeights {
    fn own_modules(target: &CandleTarget<Self>, context: &LoadContext<'_>) -> Option<Result<Modules, ModelError>> {
        let Self { trunk, latent, rope, .. } = target.weights.as_ref();
        let own = NextnTarget { trunk, rope, announced: latent.modules, dtype: &target.spec.dtype };
        let block = |tensors: &Tensors<'_>, layer| Ok(Box::new(Reader { tensors, latent }.layer(layer)?) as _);
        Some(nextn_modules(context, &own, &block))
    }

    fn shared(target: &CandleTarget<Self>) -> Result<SharedWeights<'_>, NoSharing> {
        Err(no_sharing(&target.weights.trunk.config))
    }
}

/// Why modules of other targets do not run beside it.
pub(super) fn no_sharing(config: &TransformerConfig) -> NoSharing {
    NoSharing {
        family: article(config),
        instead_of_head: "start without --draft-model, and its own modules draft",
        instead_of_module: "brings its own, so start without --mtp",
    }
}
