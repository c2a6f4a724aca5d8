//! What a Qwen3 with experts or a GLM-4.5 computes.

use crate::families::llama_moe::experts::{MoeExperts, ProbableExperts};
use crate::nn::{Activation, ExpertSizes, TransformerConfig};
use crate::plan::{
    Angles, BlockNames, Experts, Feed, Layer, MAX_MODULES, Mixer, Plan, PlanFiles, RouterPlan, Scoring, UsualAttention,
    grouped_experts,
};

/// The plan of a model of these sizes, of whose heads so many values are rotated and whose first layers are dense; it announces so many
/// draft modules.
pub(super) fn plan(
    (c, rotary): (&TransformerConfig, usize),
    (experts, dense_layers, announced): (&MoeExperts, usize, usize),
    files: PlanFiles<'_>,
) -> Plan {
    let angles = Angles { rope: c.rope.clone(), width: rotary };
    let layer = |block| layer(c, (experts, dense_layers), block, files);
    Plan::usual(c, vec![angles], (0..c.layers).map(layer).collect(), false).with_modules(
        files,
        (announced, MAX_MODULES),
        layer,
    )
}

/// A layer, or that of a draft module, which follows the last one and has experts.
fn layer(
    c: &TransformerConfig,
    (shape, dense_layers): (&MoeExperts, usize),
    block: usize,
    files: PlanFiles<'_>,
) -> Layer {
    let names = BlockNames::of(c, block, false);
    // GGUF files of GLM-4.5 have another name for the norm before the feed-forward part
    let usual = files.has_or(&names.name("ffn_norm"), true);
    let other = !usual && files.has_or(&names.name("post_attention_norm"), false);
    Layer {
        mixer: Mixer::Attention(UsualAttention::of(c).plan(&names)),
        mix: names.join("attn_norm"),
        feed: match block < dense_layers {
            true => Feed::Dense(names.gated("", c.ffn, Activation::Silu)),
            false => Feed::Experts(Box::new(experts(shape, &names, files))),
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
