//! What a Qwen3 with experts or a GLM-4.5 computes.

use crate::families::llama_moe::keys::{MoeExperts, ProbableExperts};
use crate::nn::{Activation, ExpertSizes, TransformerConfig};
use crate::plan::{
    Angles, BlockNames, Experts, Feed, Layer, MAX_MODULES, Mixer, Plan, PlanFiles, RouterPlan, Scoring, UsualAttention,
    grouped_experts,
};

/// Sizes that not every transformer has.
pub(super) struct Shape {
    /// Rotated values of a head, from the first.
    pub(super) rotary: usize,
    /// Experts of the layers that have some.
    pub(super) experts: MoeExperts,
    /// Layers before those of experts, with an ordinary feed-forward part.
    pub(super) dense_layers: usize,
}

/// The plan of a model of these sizes, which announces so many draft modules.
pub(super) fn plan(c: &TransformerConfig, (shape, announced): (&Shape, usize), files: PlanFiles<'_>) -> Plan {
    let angles = Angles { rope: c.rope.clone(), width: shape.rotary };
    let layer = |block| layer(c, shape, block, files);
    Plan::usual(c, vec![angles], (0..c.layers).map(layer).collect(), false).with_modules(
        files,
        (announced, MAX_MODULES),
        layer,
    )
}

/// A layer, or that of a draft module, which follows the last one and has experts.
pub(super) fn layer(c: &TransformerConfig, shape: &Shape, block: usize, files: PlanFiles<'_>) -> Layer {
    let names = BlockNames::of(c, block, false);
    // GGUF files of GLM-4.5 have another name for the norm before the feed-forward part
    let usual = files.has_or(&names.name("ffn_norm"), true);
    let other = !usual && files.has_or(&names.name("post_attention_norm"), false);
    Layer {
        mixer: Mixer::Attention(UsualAttention::of(c).plan(&names)),
        mix: names.join("attn_norm"),
        feed: match block < shape.dense_layers {
            true => Feed::Dense(names.gated("", c.ffn, Activation::Silu)),
            false => Feed::Experts(Box::new(experts(&shape.experts, &names, files))),
        },
        fed: names.join(if other { "post_attention_norm" } else { "ffn_norm" }),
        token_input: None,
        output_scale: None,
    }
}

fn experts(shape: &MoeExperts, names: &BlockNames, files: PlanFiles<'_>) -> Experts {
    let ProbableExperts { count, used, width, normed } = match shape {
        MoeExperts::Probable(shape) => *shape,
        MoeExperts::Grouped(shape) => return grouped_experts(shape, names, files),
    };
    Experts {
        sizes: ExpertSizes { count, d: names.width, width },
        used,
        act: Activation::Silu,
        block: names.block,
        storage: names.expert_storage(files),
        router: RouterPlan { rescaled: normed, ..RouterPlan::new(names, count, Scoring::Softmax) },
        shared: None,
        beside: None,
    }
}
