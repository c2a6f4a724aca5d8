//! Keys of these families: which part of a head is rotated, layers before those of experts, the two kinds of experts (the
//! most probable ones of Qwen3, or grouped ones with a shared one of GLM-4.5), and draft modules.
//!
//! Invariant: a key that asks for something not computed, or contradicts another, is an error that names it; so is an
//! unknown key of experts ([`OWN`]).

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::ModelError;
use crate::files::config_json::{OwnKeys, contradiction, refused, share, size};
use crate::nn::{DenseLayerKeys, GgufKeys, GroupedExpertKeys, GroupedExperts};

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

/// Most experts of a layer.
const MAX_EXPERTS: usize = 1 << 14;

/// The most probable experts of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProbableExperts {
    /// Experts of a layer.
    pub(super) count: usize,
    /// Experts of a row.
    pub(super) used: usize,
    /// Width of an expert.
    pub(super) width: usize,
    /// Whether the weights of a row's experts are scaled to the sum 1.
    pub(super) normed: bool,
}

/// The experts of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum MoeExperts {
    /// The most probable ones.
    Probable(ProbableExperts),
    /// Those with the best scores, and a shared one.
    Grouped(GroupedExperts),
}

impl ProbableExperts {
    fn checked(self, [used, count]: [&str; 2]) -> Result<Self, ModelError> {
        if self.used > self.count {
            return contradiction(format!("'{used}' is {} and '{count}' is {}", self.used, self.count));
        }
        Ok(self)
    }

    /// Reads the keys of a GGUF file, as llama.cpp does: weights are always scaled.
    fn from_gguf(keys: &GgufKeys<'_>) -> Result<Self, ModelError> {
        let used = keys.size("expert_used_count", MAX_EXPERTS)?;
        let width = match keys.gguf.number(&keys.key("expert_feed_forward_length")) {
            Some(_) => keys.size("expert_feed_forward_length", 1 << 20)?,
            None => keys.size("feed_forward_length", 1 << 20)? / used,
        };
        Self { count: keys.size("expert_count", MAX_EXPERTS)?, used, width, normed: true }
            .checked([&keys.key("expert_used_count"), &keys.key("expert_count")])
    }
}

/// The keys of `config.json` about the experts of a Qwen3.
#[derive(Clone, Debug, Deserialize)]
struct ProbableExpertKeys {
    num_experts: Option<usize>,
    num_experts_per_tok: Option<usize>,
    moe_intermediate_size: Option<usize>,
    norm_topk_prob: Option<bool>,
    decoder_sparse_step: Option<usize>,
    #[serde(default)]
    mlp_only_layers: Vec<usize>,
}

impl ProbableExpertKeys {
    /// Checks them: every layer has experts.
    fn experts(&self) -> Result<ProbableExperts, ModelError> {
        if let Some(step) = self.decoder_sparse_step.filter(|step| *step != 1) {
            return refused(format!("'decoder_sparse_step' is {step}"));
        }
        if let Some(layer) = self.mlp_only_layers.first() {
            return refused(format!("'mlp_only_layers' names layer {layer}"));
        }
        ProbableExperts {
            count: size("num_experts", self.num_experts.unwrap_or(0), MAX_EXPERTS)?,
            used: size("num_experts_per_tok", self.num_experts_per_tok.unwrap_or(0), MAX_EXPERTS)?,
            width: size("moe_intermediate_size", self.moe_intermediate_size.unwrap_or(0), 1 << 20)?,
            normed: self.norm_topk_prob.unwrap_or(false), // as in transformers
        }
        .checked(["num_experts_per_tok", "num_experts"])
    }
}
