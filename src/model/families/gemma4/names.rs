//! Tensor names of Gemma 4: those of GGUF files, by which tensors are asked for, and the checkpoint's.

/// The table of embeddings for each layer.
pub(in crate::model) const TABLE: &str = "per_layer_token_embd.weight";

/// Name of a tensor that no layer has, and the checkpoint's.
const WHOLE: &[(&str, &str)] = &[
    (TABLE, "embed_tokens_per_layer.weight"),
    ("per_layer_model_proj.weight", "per_layer_model_projection.weight"),
    ("per_layer_proj_norm.weight", "per_layer_projection_norm.weight"),
];

/// Part of a GGUF name, and of the checkpoint's.
const PARTS: &[(&str, &str)] = &[
    ("attn_norm.weight", "input_layernorm.weight"),
    ("attn_q.weight", "self_attn.q_proj.weight"),
    ("attn_k.weight", "self_attn.k_proj.weight"),
    ("attn_v.weight", "self_attn.v_proj.weight"),
    ("attn_output.weight", "self_attn.o_proj.weight"),
    ("attn_q_norm.weight", "self_attn.q_norm.weight"),
    ("attn_k_norm.weight", "self_attn.k_norm.weight"),
    ("post_attention_norm.weight", "post_attention_layernorm.weight"),
    ("ffn_norm.weight", "pre_feedforward_layernorm.weight"),
    ("ffn_gate.weight", "mlp.gate_proj.weight"),
    ("ffn_up.weight", "mlp.up_proj.weight"),
    ("ffn_down.weight", "mlp.down_proj.weight"),
    ("post_ffw_norm.weight", "post_feedforward_layernorm.weight"),
    ("inp_gate.weight", "per_layer_input_gate.weight"),
    ("proj.weight", "per_layer_projection.weight"),
    ("post_norm.weight", "post_per_layer_input_norm.weight"),
    ("layer_output_scale.weight", "layer_scalar"),
];

/// The checkpoint's name of a tensor that stands beside the layers.
pub(in crate::model) fn whole(name: &str) -> Option<&'static str> {
    WHOLE.iter().find(|(gguf, _)| *gguf == name).map(|(_, own)| *own)
}

/// The checkpoint's name of a part of a layer.
pub(in crate::model) fn part(name: &str) -> Option<&'static str> {
    PARTS.iter().find(|(gguf, _)| *gguf == name).map(|(_, own)| *own)
}
