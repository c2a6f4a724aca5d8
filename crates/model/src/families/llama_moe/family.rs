//! The families Qwen3 with experts and GLM-4.5: names, sizes, tensor names, loading.

use std::sync::Arc;

use crate::ModelError;
use crate::drafters::core::{NextnTarget, nextn_modules, nextn_plans};
use crate::families::llama_moe::{
    MoeWeights,
    config::{MoeConfig, Own, experts_in},
    names, reader,
};
use crate::files::{ConfigJson, Folder, GgufFile, ModelFiles, TensorNames};
use crate::interfaces::{
    Backend, CandleFamily, CandleTarget, Drafting, Family, FamilyConfig, LoadContext, LoadResult, Modules, Names,
    NoSharing, Progress, SharedWeights,
};
use crate::nn::{Conventions, Ends, Extras, GgufKeys, HfKeys, PairOrder, Tensors, TransformerConfig, refuse_biases};
use crate::plan::{Plan, PlanFiles};

/// A family with blocks of the Llama kind and experts.
pub struct MoeFamily {
    names: Names,
    conventions: Conventions,
    /// Whether its experts are those of GLM-4.5.
    grouped: bool,
}

const CONVENTIONS: Conventions =
    Conventions { name: "qwen3moe", qk_norm: true, qkv_bias: false, gguf_pairs: PairOrder::HalfSplit };

/// Qwen3 with experts, such as Qwen3-30B-A3B.
pub static QWEN3_MOE: MoeFamily = MoeFamily {
    names: Names { title: "qwen3-moe", gguf: &["qwen3moe"], json: &["qwen3_moe"] },
    conventions: CONVENTIONS,
    grouped: false,
};

/// GLM-4.5, 4.6 and 4.7 (not Flash).
pub static GLM4_MOE: MoeFamily = MoeFamily {
    names: Names { title: "glm4-moe", gguf: &["glm4moe"], json: &["glm4_moe"] },
    conventions: Conventions { name: "glm4moe", ..CONVENTIONS },
    grouped: true,
};

impl Family for MoeFamily {
    fn names(&self) -> Names {
        self.names
    }

    fn read_json(&self, json: &ConfigJson, folder: Option<&Folder>) -> Result<Box<dyn FamilyConfig>, ModelError> {
        let keys = json.read::<HfKeys>()?;
        let own = match self.grouped {
            true => Own::of_glm4(json.keys(), keys.layers()?)?,
            false => Own::of_qwen3(json.keys())?,
        };
        let conventions = Conventions { qk_norm: own.qk_norm, qkv_bias: own.qkv_bias, ..self.conventions };
        refuse_biases(folder, &conventions, None)?;
        let extras = Extras { partial_rotary: true, ..Extras::default() };
        let transformer = keys.transformer(&conventions, Ends::of(json, folder), extras)?;
        let rotary = (transformer.head_dim as f64 * own.rotary) as usize;
        let own = (own.experts, own.dense_layers, own.modules);
        Ok(Box::new(MoeConfig::new((transformer, rotary), own, PlanFiles::Checkpoint(folder))?))
    }

    fn read_gguf(&self, gguf: &GgufFile) -> Result<Box<dyn FamilyConfig>, ModelError> {
        let keys = GgufKeys { gguf, arch: self.conventions.name };
        let head_dim = keys.head_dim()?;
        let rotary = keys.size_or("rope.dimension_count", 1 << 12, head_dim)?;
        let conventions = Conventions {
            qk_norm: gguf.has_tensor("blk.0.attn_q_norm.weight"),
            qkv_bias: gguf.has_tensor("blk.0.attn_q.bias"),
            ..self.conventions
        };
        let (experts, dense_layers) = experts_in(&keys, self.grouped)?;
        let transformer = keys.with_experts(&conventions, Some(rotary))?;
        let announced = gguf.number(&keys.key("nextn_predict_layers")).unwrap_or(0);
        let modules = usize::try_from(announced).unwrap_or(usize::MAX);
        let own = (experts, dense_layers, modules);
        Ok(Box::new(MoeConfig::new((transformer, rotary), own, PlanFiles::Gguf(gguf))?))
    }

    fn tensor_names(&self) -> TensorNames {
        names::tensor_name
    }
}

impl FamilyConfig for MoeConfig {
    fn transformer(&self) -> &TransformerConfig {
        &self.transformer
    }

    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn trims_draft_vocab(&self, named: bool) -> bool {
        !named && self.modules > 0
    }

    fn drafting(&self, source: &ModelFiles) -> Drafting {
        let files = (source, &self.transformer, &self.plan);
        let brings = self.transformer.conventions.name == GLM4_MOE.conventions.name;
        Drafting { own: brings.then(|| nextn_plans(files, self.modules)), no_sharing: None }
    }

    fn load(&self, context: &LoadContext<'_>, backend: Backend<'_>, progress: &mut Progress<'_>) -> LoadResult {
        let (tensors, spec) = context.on_candle(&backend);
        let weights = Arc::new(MoeWeights::load(&tensors, self, context.ctx_len, progress)?);
        Ok(Box::new(CandleTarget { weights, spec }))
    }
}

impl CandleFamily for MoeWeights {
    fn own_modules(target: &CandleTarget<Self>, context: &LoadContext<'_>) -> Option<Result<Modules, ModelError>> {
        let Self { trunk, rope, config } = target.weights.as_ref();
        let own = NextnTarget { trunk, rope, announced: config.modules, dtype: &target.spec.dtype };
        let block = |tensors: &Tensors<'_>, layer| Ok(Box::new(reader::block(tensors, config, layer)?) as _);
        (trunk.config.conventions.name == GLM4_MOE.conventions.name).then(|| nextn_modules(context, &own, &block))
    }

    fn shared(target: &CandleTarget<Self>) -> Result<SharedWeights<'_>, NoSharing> {
        Ok(SharedWeights::Candle(Arc::clone(&target.weights.trunk) as _, target.spec.ctx_len))
    }
}
