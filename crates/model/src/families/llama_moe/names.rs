//! Tensor names of these families: GGUF's, by which the program requests tensors, and the checkpoint's. A draft module is
//! one more layer in both.

use crate::files::{Layout, block_part, expert_part, part_name};

/// Parts that blocks of the Llama kind do not have.
const PARTS: &[(&str, &str)] = &[
    ("attn_q.bias", "self_attn.q_proj.bias"),
    ("attn_k.bias", "self_attn.k_proj.bias"),
    ("attn_v.bias", "self_attn.v_proj.bias"),
    ("ffn_gate_inp", "mlp.gate"),
    ("exp_probs_b.bias", "mlp.gate.e_score_correction_bias"),
    ("ffn_gate_up_exps.weight", "mlp.experts.gate_up_proj"),
    ("ffn_down_exps.weight", "mlp.experts.down_proj"),
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

/// The checkpoint's name of a tensor.
pub(super) fn tensor_name(layout: &Layout, name: &str) -> Option<String> {
    let (layer, part) = block_part(name)?;
    let own = part_name(PARTS, part).or_else(|| expert_part(part))?;
    Some(format!("{}layers.{layer}.{own}", layout.prefix))
}
