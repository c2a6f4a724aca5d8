//! What both formats of these files share: conventions, tensor names, the plan.

use super::keys::Latent;
use crate::drafters::core::nextn_plans;
use crate::families::deepseek::plan;
use crate::files::{Layout, block_part, expert_part, part_name};
use crate::interfaces::{NoSharing, OwnModules, Planned};
use crate::nn::{Conventions, PairOrder, TransformerConfig};
use crate::plan::PlanFiles;

pub(super) const fn conventions(name: &'static str) -> Conventions {
    Conventions { name, qk_norm: false, qkv_bias: false, gguf_pairs: PairOrder::Interleaved }
}

/// Of the transformer's sizes, `kv_heads` is `heads`, and `head_dim` the width of a query.
pub(super) fn planned(transformer: TransformerConfig, latent: Latent, files: PlanFiles<'_>) -> Planned {
    let plan = plan::plan(&transformer, &latent, files);
    let family = match transformer.conventions.name {
        "glm4_moe_lite" => "a glm4_moe_lite",
        "deepseek2" => "a deepseek2",
        _ => "a deepseek_v3",
    };
    let no_sharing = NoSharing {
        family,
        instead_of_head: "start without --draft-model, and its own modules draft",
        instead_of_module: "brings its own, so start without --mtp",
    };
    let own = OwnModules::new(move |source, of| {
        nextn_plans(source, of, |block| plan::layer(&of.transformer, &latent, block, PlanFiles::of(source)))
    });
    Planned { own: Some(own), no_sharing: Some(no_sharing), ..Planned::new(transformer, plan) }
}

/// The checkpoint's name of a tensor, by that in GGUF files; a draft module counts as one more layer there too.
pub(super) fn tensor_name(layout: &Layout, name: &str) -> Option<String> {
    let (layer, part) = block_part(name)?;
    self::part(part).map(|own| format!("{}layers.{layer}.{own}", layout.prefix))
}

/// Parts that only this layout has.
pub(super) const PARTS: &[(&str, &str)] = &[
    ("attn_q_a", "self_attn.q_a_proj"),
    ("attn_q_a_norm", "self_attn.q_a_layernorm"),
    ("attn_q_b", "self_attn.q_b_proj"),
    ("attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"),
    ("attn_kv_a_norm", "self_attn.kv_a_layernorm"),
    ("attn_kv_b", "self_attn.kv_b_proj"),
    ("ffn_gate_inp", "mlp.gate"),
    ("exp_probs_b.bias", "mlp.gate.e_score_correction_bias"),
    ("ffn_gate_shexp", "mlp.shared_experts.gate_proj"),
    ("ffn_up_shexp", "mlp.shared_experts.up_proj"),
    ("ffn_down_shexp", "mlp.shared_experts.down_proj"),
    ("nextn.enorm", "enorm"),
    ("nextn.hnorm", "hnorm"),
    ("nextn.eh_proj", "eh_proj"),
    ("nextn.embed_tokens", "embed_tokens"),
    ("nextn.shared_head_norm", "shared_head.norm"),
    ("nextn.shared_head_head", "shared_head.head"),
];

/// The checkpoint's name of a part of a layer; an expert's number follows its part (`ffn_up.17.weight`).
pub(super) fn part(name: &str) -> Option<String> {
    part_name(PARTS, name).or_else(|| expert_part(name))
}
