//! What models of Llama's layout compute.

use crate::model::nn::{Activation, TransformerConfig};
use crate::model::plan::{Angles, BlockNames, Feed, Layer, Mixer, Plan, UsualAttention};

/// The plan of a model of these sizes.
pub(super) fn plan(config: &TransformerConfig) -> Plan {
    let angles = Angles { rope: config.rope.clone(), width: config.head_dim };
    let layers = (0..config.layers).map(|index| layer(config, index)).collect();
    Plan::usual(config, vec![angles], layers, false)
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
