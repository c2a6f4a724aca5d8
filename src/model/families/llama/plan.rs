//! What models of Llama's layout compute.

use crate::model::nn::{Activation, TransformerConfig};
use crate::model::plan::{Angles, BlockNames, Feed, Layer, MAX_MODULES, Mixer, Plan, PlanFiles, UsualAttention};

/// The plan of a model of these sizes, which announces so many draft modules.
pub(super) fn plan(config: &TransformerConfig, announced: usize, files: PlanFiles<'_>) -> Plan {
    let angles = Angles { rope: config.rope.clone(), width: config.head_dim };
    let layers = (0..config.layers).map(|index| layer(config, index)).collect();
    let module = |block| layer(config, block);
    Plan::usual(config, vec![angles], layers, false).with_modules(files, (announced, MAX_MODULES), module)
}

/// A layer, or that of a draft module, which follows the last one.
pub(super) fn layer(config: &TransformerConfig, block: usize) -> Layer {
    let names = BlockNames::of(config, block, false);
    Layer {
        mixer: Mixer::Attention(UsualAttention::of(config).plan(&names)),
        mix: names.join("attn_norm"),
        feed: Feed::Dense(names.gated("", config.ffn, Activation::Silu)),
        fed: names.join("ffn_norm"),
        token_input: None,
        output_scale: None,
    }
}
