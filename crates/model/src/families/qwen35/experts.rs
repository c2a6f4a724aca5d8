//! Sizes of the experts of Qwen3.5 and Qwen3-Next.

use serde::Deserialize;

use crate::ModelError;
use crate::files::config_json::{contradiction, refused, size};
use crate::nn::GgufKeys;

/// Most experts of a layer.
const MAX_EXPERTS: usize = 1 << 14;

/// The experts of every layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertShape {
    /// Experts of a layer.
    pub count: usize,
    /// Experts of a row.
    pub used: usize,
    /// Width of an expert.
    pub width: usize,
    /// Width of the shared expert.
    pub shared: usize,
    /// Whether the weights of a row's experts are scaled to the sum 1.
    pub normed: bool,
}

impl ExpertShape {
    fn checked(self, [used, count]: [&str; 2]) -> Result<Self, ModelError> {
        if self.used > self.count {
            return contradiction(format!("'{used}' is {} and '{count}' is {}", self.used, self.count));
        }
        Ok(self)
    }

    /// Reads the keys of a GGUF file, as llama.cpp does: weights are always scaled.
    pub(super) fn from_gguf(keys: &GgufKeys<'_>) -> Result<Self, ModelError> {
        let width = keys.size("expert_feed_forward_length", 1 << 20)?;
        Self {
            count: keys.size("expert_count", MAX_EXPERTS)?,
            used: keys.size("expert_used_count", MAX_EXPERTS)?,
            width,
            shared: keys.size_or("expert_shared_feed_forward_length", 1 << 20, width)?,
            normed: true,
        }
        .checked([&keys.key("expert_used_count"), &keys.key("expert_count")])
    }
}

/// The keys of `config.json` about experts.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ExpertKeys {
    num_experts: Option<usize>,
    num_experts_per_tok: Option<usize>,
    moe_intermediate_size: Option<usize>,
    shared_expert_intermediate_size: Option<usize>,
    norm_topk_prob: Option<bool>,
    decoder_sparse_step: Option<usize>,
    #[serde(default)]
    mlp_only_layers: Vec<usize>,
}

impl ExpertKeys {
    /// The experts of a family that has them in every layer.
    pub(super) fn experts(&self) -> Result<ExpertShape, ModelError> {
        if let Some(step) = self.decoder_sparse_step.filter(|step| *step != 1) {
            return refused(format!("'decoder_sparse_step' is {step}"));
        }
        if let Some(layer) = self.mlp_only_layers.first() {
            return refused(format!("'mlp_only_layers' names layer {layer}"));
        }
        let width = size("moe_intermediate_size", self.moe_intermediate_size.unwrap_or(0), 1 << 20)?;
        ExpertShape {
            count: size("num_experts", self.num_experts.unwrap_or(0), MAX_EXPERTS)?,
            used: size("num_experts_per_tok", self.num_experts_per_tok.unwrap_or(0), MAX_EXPERTS)?,
            width,
            shared: size(
                "shared_expert_intermediate_size",
                self.shared_expert_intermediate_size.unwrap_or(width),
                1 << 20,
            )?,
            normed: self.norm_topk_prob.unwrap_or(true),
        }
        .checked(["num_experts_per_tok", "num_experts"])
    }

    /// Rejects experts in a family without.
    pub(super) fn refuse(&self) -> Result<(), ModelError> {
        match self.num_experts {
            Some(experts) if experts > 0 => refused(format!("'num_experts' is {experts}")),
            _ => Ok(()),
        }
    }
}
