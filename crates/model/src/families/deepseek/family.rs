//! The families of DeepSeek-V3's layout: names, sizes, tensor names.

use std::sync::Arc;

use crate::ModelError;
use crate::drafters::core::nextn_plans;
use crate::families::deepseek::{
    DeepSeekWeights,
    config::{DeepSeekConfig, LatentKeys},
    gguf,
    load::no_sharing,
    names,
};
use crate::files::{ConfigJson, Folder, GgufFile, Layout, ModelFiles, TensorNames, block_part};
use crate::interfaces::{
    Backend, CandleTarget, Drafting, Family, FamilyConfig, LoadContext, LoadResult, Names, Progress,
};
use crate::nn::{Conventions, Ends, Extras, HfKeys, PairOrder, TransformerConfig, refuse_biases};
use crate::plan::{Plan, PlanFiles};

/// A family of DeepSeek-V3's layout.
pub struct DeepSeekFamily {
    names: Names,
    conventions: Conventions,
    /// Those of its GGUF files, named by their architecture.
    gguf: Conventions,
    /// Number of dense layers if no key states it.
    usual_dense_layers: Option<usize>,
}

/// DeepSeek-V3, R1 and V3.1: latent attention and experts. GGUF files of GLM-4.7-Flash and Kimi K2 have the same
/// architecture.
pub static DEEPSEEK_V3: DeepSeekFamily = DeepSeekFamily::named("deepseek_v3", (&["deepseek_v3"], &["deepseek2"]), None);
/// GLM-4.7-Flash.
pub static GLM4_MOE_LITE: DeepSeekFamily = DeepSeekFamily::named("glm4_moe_lite", (&["glm4_moe_lite"], &[]), Some(1));

impl DeepSeekFamily {
    const fn named(
        name: &'static str,
        (json, gguf): (&'static [&'static str], &'static [&'static str]),
        usual_dense_layers: Option<usize>,
    ) -> Self {
        let gguf_pairs = PairOrder::Interleaved;
        let conventions = Conventions { name, qk_norm: false, qkv_bias: false, gguf_pairs };
        let names = Names { title: name, gguf, json };
        Self { names, conventions, gguf: Conventions { name: "deepseek2", ..conventions }, usual_dense_layers }
    }
}

impl Family for DeepSeekFamily {
    fn names(&self) -> Names {
        self.names
    }

    fn read_json(&self, json: &ConfigJson, folder: Option<&Folder>) -> Result<Box<dyn FamilyConfig>, ModelError> {
        refuse_biases(folder, &self.conventions, None)?;
        let own = LatentKeys::from_json(json.keys())?;
        let keys = json.read::<HfKeys>()?;
        let latent = own.latent(self.usual_dense_layers, (keys.layers()?, keys.heads()?), keys.sharper()?)?;
        let head_dim = Some(latent.attention.plain + latent.attention.rotary);
        let extras = Extras { head_dim, mscale: true, own_heads: true, ..Extras::default() };
        let transformer = keys.transformer(&self.conventions, Ends::of(json, folder), extras)?;
        Ok(Box::new(DeepSeekConfig::new(transformer, latent, PlanFiles::Checkpoint(folder))))
    }

    fn read_gguf(&self, gguf: &GgufFile) -> Result<Box<dyn FamilyConfig>, ModelError> {
        Ok(Box::new(gguf::config(gguf, &self.gguf)?))
    }

    fn tensor_names(&self) -> TensorNames {
        tensor_name
    }
}

/// The checkpoint's name of a tensor; a draft module counts as one more layer there too.
fn tensor_name(layout: &Layout, name: &str) -> Option<String> {
    let (layer, part) = block_part(name)?;
    names::part(part).map(|own| format!("{}layers.{layer}.{own}", layout.prefix))
}

impl FamilyConfig for DeepSeekConfig {
    fn transformer(&self) -> &TransformerConfig {
        &self.transformer
    }

    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn trims_draft_vocab(&self, named: bool) -> bool {
        !named
    }

    fn drafting(&self, source: &ModelFiles) -> Drafting {
        let files = (source, &self.transformer, &self.plan);
        let own = nextn_plans(files, self.latent.modules);
        Drafting { own: Some(own), no_sharing: Some(no_sharing(&self.transformer)) }
    }

    fn load(&self, context: &LoadContext<'_>, backend: Backend<'_>, progress: &mut Progress<'_>) -> LoadResult {
        let (tensors, spec) = context.on_candle(&backend);
        let weights = Arc::new(DeepSeekWeights::load(&tensors, self, context.ctx_len, progress)?);
        Ok(Box::new(CandleTarget { weights, spec }))
    }
}
