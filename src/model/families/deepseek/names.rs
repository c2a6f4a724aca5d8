//! Tensor names of DeepSeek-V3's layout: those by which tensors are asked for, after GGUF's, and the checkpoint's. A
//! draft module is one layer more, in both.

/// Part of a name, and of the checkpoint's.
const PARTS: &[(&str, &str)] = &[
    ("attn_norm.weight", "input_layernorm.weight"),
    ("attn_q.weight", "self_attn.q_proj.weight"),
    ("attn_q_a.weight", "self_attn.q_a_proj.weight"),
    ("attn_q_a_norm.weight", "self_attn.q_a_layernorm.weight"),
    ("attn_q_b.weight", "self_attn.q_b_proj.weight"),
    ("attn_kv_a_mqa.weight", "self_attn.kv_a_proj_with_mqa.weight"),
    ("attn_kv_a_norm.weight", "self_attn.kv_a_layernorm.weight"),
    ("attn_kv_b.weight", "self_attn.kv_b_proj.weight"),
    ("attn_output.weight", "self_attn.o_proj.weight"),
    ("ffn_norm.weight", "post_attention_layernorm.weight"),
    ("ffn_gate.weight", "mlp.gate_proj.weight"),
    ("ffn_up.weight", "mlp.up_proj.weight"),
    ("ffn_down.weight", "mlp.down_proj.weight"),
    ("ffn_gate_inp.weight", "mlp.gate.weight"),
    ("exp_probs_b.bias", "mlp.gate.e_score_correction_bias"),
    ("ffn_gate_shexp.weight", "mlp.shared_experts.gate_proj.weight"),
    ("ffn_up_shexp.weight", "mlp.shared_experts.up_proj.weight"),
    ("ffn_down_shexp.weight", "mlp.shared_experts.down_proj.weight"),
    ("nextn.enorm.weight", "enorm.weight"),
    ("nextn.hnorm.weight", "hnorm.weight"),
    ("nextn.eh_proj.weight", "eh_proj.weight"),
    ("nextn.embed_tokens.weight", "embed_tokens.weight"),
    ("nextn.shared_head_norm.weight", "shared_head.norm.weight"),
    ("nextn.shared_head_head.weight", "shared_head.head.weight"),
];

/// The checkpoint's name of a part of a layer; an expert's number stands behind its part (`ffn_up.17.weight`).
pub(in crate::model) fn part(name: &str) -> Option<String> {
    if let Some((_, own)) = PARTS.iter().find(|(asked, _)| *asked == name) {
        return Some((*own).to_owned());
    }
    let (part, expert) = name.strip_suffix(".weight")?.rsplit_once('.')?;
    let own = match part {
        "ffn_gate" => "gate_proj",
        "ffn_up" => "up_proj",
        "ffn_down" => "down_proj",
        _ => return None,
    };
    expert.parse::<u16>().ok()?;
    Some(format!("mlp.experts.{expert}.{own}.weight"))
}

#[cfg(test)]
mod tests {
    use crate::model::families::deepseek::names::part;

    #[test]
    fn experts_have_numbers() {
        assert_eq!(part("ffn_up.17.weight").as_deref(), Some("mlp.experts.17.up_proj.weight"));
        assert_eq!(part("ffn_up.weight").as_deref(), Some("mlp.up_proj.weight"));
        assert_eq!(part("ffn_up.x.weight"), None);
        assert_eq!(part("attn_k.1.weight"), None);
    }
}
