//! The two kinds of experts of these families: the most probable ones (Qwen3), or grouped ones with a shared one (GLM-4.5).

use std::sync::Arc;

use serde::Deserialize;

use crate::ModelError;
use crate::files::config_json::{contradiction, refused, size};
use crate::nn::{Activation, ExpertSizes, FeedForward, GgufKeys, GroupedExperts, Mixture, MostProbable, Tensors};

/// Most experts of a layer.
const MAX_EXPERTS: usize = 1 << 14;

/// The most probable experts of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbableExperts {
    /// Experts of a layer.
    pub count: usize,
    /// Experts of a row.
    pub used: usize,
    /// Width of an expert.
    pub width: usize,
    /// Whether the weights of a row's experts are scaled to the sum 1.
    pub normed: bool,
}

/// The experts of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MoeExperts {
    /// The most probable ones.
    Probable(ProbableExperts),
    /// Those with the best scores, and a shared one.
    Grouped(GroupedExperts),
}

impl MoeExperts {
    pub(super) fn read(&self, tensors: &Tensors<'_>, layer: usize) -> Result<FeedForward, ModelError> {
        let ProbableExperts { count, used, width, normed } = match self {
            Self::Probable(experts) => *experts,
            Self::Grouped(experts) => return experts.read(tensors, layer),
        };
        let own = tensors.block(layer);
        let router = (own.router(count)?, Arc::new(MostProbable { used, normed }) as _);
        let sizes = ExpertSizes { count, d: tensors.config.d_model, width };
        Ok(FeedForward::Mixture(Mixture::new(router, own.experts(sizes, Activation::Silu)?, None)))
    }
}

impl ProbableExperts {
    fn checked(self, [used, count]: [&str; 2]) -> Result<Self, ModelError> {
        if self.used > self.count {
            return contradiction(format!("'{used}' is {} and '{count}' is {}", self.used, self.count));
        }
        Ok(self)
    }

    /// Reads the keys of a GGUF file, as llama.cpp does: weights are always scaled.
    pub(super) fn from_gguf(keys: &GgufKeys<'_>) -> Result<Self, ModelError> {
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
pub(super) struct ProbableExpertKeys {
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
    pub(super) fn experts(&self) -> Result<ProbableExperts, ModelError> {
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
