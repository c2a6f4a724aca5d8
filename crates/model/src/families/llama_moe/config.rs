//! Sizes of these families: which part of a head is rotated, layers before those of experts, and draft modules.
//!
//! Invariant: a key that asks for something not computed, or contradicts another, is an error that names it; so is an
//! unknown key of experts ([`OWN`]).

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::ModelError;
use crate::families::llama_moe::experts::{MoeExperts, ProbableExpertKeys, ProbableExperts};
use crate::families::llama_moe::plan::plan;
use crate::files::config_json::{OwnKeys, contradiction, share};
use crate::nn::{DenseLayerKeys, GgufKeys, GroupedExpertKeys, GroupedExperts, TransformerConfig};
use crate::plan::{Plan, PlanFiles};

/// Sizes of a target.
#[derive(Clone, Debug, PartialEq)]
pub struct MoeConfig {
    /// Those of every transformer; `ffn` is the width of dense layers.
    pub transformer: TransformerConfig,
    /// Rotated values of a head, from the first.
    pub rotary: usize,
    /// Experts of the layers that have some.
    pub experts: MoeExperts,
    /// Layers before those of experts, with an ordinary feed-forward part.
    pub dense_layers: usize,
    /// Draft modules that the file announces.
    pub modules: usize,
    /// What it computes.
    pub plan: Plan,
}

const OWN: OwnKeys = OwnKeys {
    starts: &["moe_", "n_", "num_experts", "num_expert_", "topk_", "shared_expert", "mtp_", "attn_", "zero_expert"],
    known: &[
        "moe_intermediate_size",
        "moe_layer_freq",
        "n_group",
        "n_routed_experts",
        "n_shared_experts",
        "num_experts",
        "num_experts_per_tok",
        "topk_group",
        "topk_method",
        "attn_implementation",
    ],
    asks: |value| !value.is_null(),
};

/// What a family's `config.json` says besides the keys of every transformer.
pub(super) struct Own {
    pub(super) experts: MoeExperts,
    pub(super) dense_layers: usize,
    pub(super) modules: usize,
    /// Share of a head that is rotated.
    pub(super) rotary: f64,
    /// Whether queries and keys are normed head by head.
    pub(super) qk_norm: bool,
    /// Whether queries, keys and values have a bias.
    pub(super) qkv_bias: bool,
}

/// The keys of a Qwen3 with experts.
#[derive(Clone, Debug, Deserialize)]
struct Qwen3Keys {
    #[serde(flatten)]
    experts: ProbableExpertKeys,
}

/// The keys of a GLM-4.5.
#[derive(Clone, Debug, Deserialize)]
struct GlmKeys {
    #[serde(flatten)]
    experts: GroupedExpertKeys,
    #[serde(flatten)]
    dense: DenseLayerKeys,
    use_qk_norm: Option<bool>,
    attention_bias: Option<bool>,
    partial_rotary_factor: Option<f64>,
    rope_parameters: Option<Rotary>,
    num_nextn_predict_layers: Option<usize>,
}

/// The part of `rope_parameters` that states how much is rotated.
#[derive(Clone, Debug, Default, Deserialize)]
struct Rotary {
    partial_rotary_factor: Option<f64>,
}

impl Own {
    /// Reads the keys of a Qwen3 with experts.
    pub(super) fn of_qwen3(object: &Map<String, Value>) -> Result<Self, ModelError> {
        let keys: Qwen3Keys = OWN.read(object)?;
        let experts = MoeExperts::Probable(keys.experts.experts()?);
        Ok(Self { experts, dense_layers: 0, modules: 0, rotary: 1.0, qk_norm: true, qkv_bias: false })
    }

    /// Reads the keys of a GLM-4.5 of so many layers; what is missing is as in `transformers`.
    pub(super) fn of_glm4(object: &Map<String, Value>, layers: usize) -> Result<Self, ModelError> {
        let keys: GlmKeys = OWN.read(object)?;
        let rope = keys.rope_parameters.unwrap_or_default();
        let part = rope.partial_rotary_factor.or(keys.partial_rotary_factor).unwrap_or(0.5);
        Ok(Self {
            experts: MoeExperts::Grouped(keys.experts.experts()?),
            dense_layers: keys.dense.dense_layers(Some(1), layers)?,
            modules: keys.num_nextn_predict_layers.unwrap_or(0),
            rotary: share("partial_rotary_factor", part)?,
            qk_norm: keys.use_qk_norm == Some(true),
            qkv_bias: keys.attention_bias == Some(true),
        })
    }
}

impl MoeConfig {
    /// Those of a model of whose heads so many values are rotated, if they go in pairs; it has these experts after so many
    /// dense layers, and announces so many draft modules.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] if they do not.
    pub(super) fn new(
        (transformer, rotary): (TransformerConfig, usize),
        (experts, dense_layers, modules): (MoeExperts, usize, usize),
        files: PlanFiles<'_>,
    ) -> Result<Self, ModelError> {
        let head = transformer.head_dim;
        if rotary == 0 || !rotary.is_multiple_of(2) || rotary > head {
            return contradiction(format!("{rotary} values of a head of {head} cannot be rotated in pairs"));
        }
        let plan = plan((&transformer, rotary), (&experts, dense_layers, modules), files);
        Ok(Self { transformer, rotary, experts, dense_layers, modules, plan })
    }
}

/// Experts and dense layers of a GGUF file.
pub(super) fn experts_in(keys: &GgufKeys<'_>, grouped: bool) -> Result<(MoeExperts, usize), ModelError> {
    if !grouped {
        return Ok((MoeExperts::Probable(ProbableExperts::from_gguf(keys)?), 0));
    }
    let key = keys.key("leading_dense_block_count");
    let (dense, layers) = (keys.gguf.number(&key).unwrap_or(0), keys.layers()?);
    match usize::try_from(dense).ok().filter(|dense| *dense <= layers) {
        // without the key scores are sigmoids, as in llama.cpp
        Some(dense) => Ok((MoeExperts::Grouped(GroupedExperts::from_gguf(keys, true)?), dense)),
        None => contradiction(format!("'{key}' is {dense}, and there are {layers} layers")),
    }
}
