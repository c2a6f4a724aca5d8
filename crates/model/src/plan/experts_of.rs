//! Experts as several families have them.

use crate::ModelError;
use crate::files::TensorSource;

use super::feed::{ExpertStorage, Experts, Groups, RouterInput, RouterPlan, Scoring, SharedFeed};
use super::tensors_of::{BlockNames, PlanFiles};
use crate::nn::{Activation, ExpertSizes, Gating, GroupedExperts};

impl RouterPlan {
    /// The usual one of so many experts: it reads what they read, and scores are weights.
    #[must_use]
    pub fn new(names: &BlockNames, experts: usize, scoring: Scoring) -> Self {
        Self {
            weight: names.matrix("ffn_gate_inp", experts, names.width),
            reads: RouterInput::Normed,
            scoring,
            bias: None,
            groups: None,
            rescaled: false,
            factor: 1.0,
            per_expert: None,
        }
    }
}

impl Experts {
    /// Whether the files agree that no position runs an expert whatever it chooses, where the configuration says so.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] naming the key.
    pub fn check(&self, files: &dyn TensorSource) -> Result<(), ModelError> {
        let layer = self.block;
        match self.shared.is_none() && files.has(&format!("blk.{layer}.ffn_up_shexp.weight")) {
            true => Err(ModelError::Metadata(format!(
                "'n_shared_experts' is 0 and layer {layer} has experts that every token goes through ('shared_experts')"
            ))),
            false => Ok(()),
        }
    }
}

impl BlockNames {
    /// How the experts of the block are stored.
    #[must_use]
    pub fn expert_storage(&self, files: PlanFiles<'_>) -> ExpertStorage {
        match (files.has_or(&self.name("ffn_gate_up_exps"), false), files.has_or(&self.name("ffn_gate.0"), true)) {
            (true, _) => ExpertStorage::Joined,
            (false, true) => ExpertStorage::Single,
            (false, false) => ExpertStorage::Stacked,
        }
    }
}

/// Experts in groups, with a shared one, as DeepSeek-V3 and GLM-4.5 have them. A GGUF file may lack the correction of
/// scores.
#[must_use]
pub fn grouped_experts(shape: &GroupedExperts, names: &BlockNames, files: PlanFiles<'_>) -> Experts {
    let bias = names.bias("exp_probs_b", shape.count);
    let has_bias = files.is_checkpoint() || files.has_or(&bias.name, true);
    let scoring = match shape.gating {
        Gating::Sigmoid => Scoring::Sigmoid,
        Gating::Softmax => Scoring::Softmax,
    };
    Experts {
        sizes: ExpertSizes { count: shape.count, d: names.width, width: shape.width },
        used: shape.used,
        act: Activation::Silu,
        block: names.block,
        storage: names.expert_storage(files),
        router: RouterPlan {
            bias: has_bias.then_some(bias),
            groups: (shape.groups > 1).then_some(Groups { count: shape.groups, used: shape.used_groups }),
            rescaled: shape.normed,
            factor: shape.factor,
            ..RouterPlan::new(names, shape.count, scoring)
        },
        shared: (shape.shared > 0).then(|| SharedFeed {
            feed: names.gated("_shexp", shape.shared * shape.width, Activation::Silu),
            gate: None,
            count: shape.shared,
        }),
        beside: None,
    }
}
