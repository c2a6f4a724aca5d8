//! What a Gemma 3 computes.

use crate::families::gemma3::keys::Layers;
use crate::nn::{Activation, PairOrder, TransformerConfig};
use crate::plan::{
    Angles, Attention, BlockNames, Feed, Join, Layer, Mixer, Plan, PlanFiles, Rotation, Sight, UsualAttention,
};
use crate::shared_kv::Reach;

/// The plan of a model of these sizes.
pub(super) fn plan(config: &TransformerConfig, layers: &Layers, files: PlanFiles<'_>) -> Plan {
    let centred = files.is_checkpoint();
    let angles = [&config.rope, &layers.full_rope].map(|rope| Angles { rope: rope.clone(), width: config.head_dim });
    let of_layer = |index| layer(config, layers, BlockNames::of(config, index, centred));
    let mut plan = Plan::usual(config, angles.into(), (0..config.layers).map(of_layer).collect(), centred);
    plan.embedding.scale = (config.d_model as f64).sqrt();
    plan.end.cap = layers.logit_softcap;
    plan
}

fn layer(config: &TransformerConfig, layers: &Layers, names: BlockNames) -> Layer {
    // table of angles, and window
    let (table, window) = match layers.reach[names.block] {
        Reach::Sliding => (0, Some(layers.window)),
        Reach::Full => (1, None),
    };
    let rotation = Some(Rotation { table, pairs: PairOrder::HalfSplit });
    let attention = UsualAttention { rotation, ..UsualAttention::of(config) }.plan(&names);
    let (scale, cap) = (layers.scores.scale, layers.scores.softcap);
    let sight = Sight { window, causal: true };
    Layer {
        mixer: Mixer::Attention(Attention { scale, cap, sight, ..attention }),
        mix: Join::between(names.norm("attn_norm"), names.norm("post_attention_norm")),
        feed: Feed::Dense(names.gated("", config.ffn, Activation::Gelu)),
        fed: Join::between(names.norm("ffn_norm"), names.norm("post_ffw_norm")),
        token_input: None,
        output_scale: None,
    }
}
