//! Names of families of DeepSeek-V3's layout, and of their tensors: GGUF's, by which the program requests tensors, and the checkpoint's. A draft
//! module is one more layer in both.

use crate::files::{expert_part, part_name};
use crate::nn::TransformerConfig;

/// The family's name with its article.
pub(super) fn article(config: &TransformerConfig) -> &'static str {
    match config.conventions.name {
        "glm4_moe_lite" => "a glm4_moe_lite",
        "deepseek2" => "a deepseek2",
        _ => "a deepseek_v3",
    }
}

/// Parts that only this layout has.
const PARTS: &[(&str, &str)] = &[
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

#[cfg(test)]
mod tests {
    use crate::families::deepseek::names::part;

    #[test]
    fn experts_have_numbers() {
        assert_eq!(part("ffn_up.17.weight").as_deref(), Some("mlp.experts.17.up_proj.weight"));
        assert_eq!(part("ffn_up.weight").as_deref(), Some("mlp.up_proj.weight"));
        assert_eq!(part("ffn_up.x.weight"), None);
        assert_eq!(part("attn_k.1.weight"), None);
    }
}
