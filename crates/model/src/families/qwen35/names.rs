//! Names of Qwen3.5 and Qwen3-Next, and of their tensors: GGUF's, by which the program requests tensors, and the checkpoint's.

use crate::files::{Layout, block_part, expert_part, part_name, renamed};
use crate::nn::TransformerConfig;

/// The family's name with its article.
pub(super) fn article(config: &TransformerConfig) -> &'static str {
    if config.conventions.name == "qwen3next" { "a Qwen3-Next" } else { "a Qwen3.5" }
}

/// Parts that only this family has.
const PARTS: &[(&str, &str)] = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("attn_qkv", "linear_attn.in_proj_qkv"),
    ("attn_gate", "linear_attn.in_proj_z"),
    ("ssm_alpha", "linear_attn.in_proj_a"),
    ("ssm_beta", "linear_attn.in_proj_b"),
    ("ssm_conv1d", "linear_attn.conv1d"),
    ("ssm_a", "linear_attn.A_log"),
    ("ssm_dt.bias", "linear_attn.dt_bias"),
    ("ssm_norm", "linear_attn.norm"),
    ("ssm_out", "linear_attn.out_proj"),
    ("ssm_in", "linear_attn.in_proj_qkvz"),
    ("ssm_ba", "linear_attn.in_proj_ba"),
    ("ffn_gate_inp", "mlp.gate"),
    ("ffn_gate_up_exps.weight", "mlp.experts.gate_up_proj"),
    ("ffn_down_exps.weight", "mlp.experts.down_proj"),
    ("ffn_gate_shexp", "mlp.shared_expert.gate_proj"),
    ("ffn_up_shexp", "mlp.shared_expert.up_proj"),
    ("ffn_down_shexp", "mlp.shared_expert.down_proj"),
    ("ffn_gate_inp_shexp", "mlp.shared_expert_gate"),
];

/// Parts of the draft module, which GGUF files count as one more layer.
const MODULE: &[(&str, &str)] = &[
    ("nextn.eh_proj.weight", "mtp.fc.weight"),
    ("nextn.enorm.weight", "mtp.pre_fc_norm_embedding.weight"),
    ("nextn.hnorm.weight", "mtp.pre_fc_norm_hidden.weight"),
    ("nextn.shared_head_norm.weight", "mtp.norm.weight"),
];

/// The checkpoint's name of a tensor; a draft module's block counts as one more layer.
pub(super) fn tensor_name(layout: &Layout, name: &str) -> Option<String> {
    let (layer, part) = block_part(name)?;
    if let Some(own) = renamed(MODULE, part) {
        return Some(own.to_owned());
    }
    let (prefix, layer) = match layer.checked_sub(layout.layers) {
        Some(module) => ("mtp.", module),
        None => (layout.prefix, layer),
    };
    let own = part_name(PARTS, part).or_else(|| expert_part(part))?;
    Some(format!("{prefix}layers.{layer}.{own}"))
}
