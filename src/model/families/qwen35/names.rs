//! Tensor names of Qwen3.5: those of GGUF files, by which tensors are asked for, and the checkpoint's.

/// Part of a GGUF name, and of the checkpoint's.
const PARTS: &[(&str, &str)] = &[
    ("post_attention_norm.weight", "post_attention_layernorm.weight"),
    ("attn_qkv.weight", "linear_attn.in_proj_qkv.weight"),
    ("attn_gate.weight", "linear_attn.in_proj_z.weight"),
    ("ssm_alpha.weight", "linear_attn.in_proj_a.weight"),
    ("ssm_beta.weight", "linear_attn.in_proj_b.weight"),
    ("ssm_conv1d.weight", "linear_attn.conv1d.weight"),
    ("ssm_a", "linear_attn.A_log"),
    ("ssm_dt.bias", "linear_attn.dt_bias"),
    ("ssm_norm.weight", "linear_attn.norm.weight"),
    ("ssm_out.weight", "linear_attn.out_proj.weight"),
];

/// Of the draft module, which GGUF files count as one more layer.
const MODULE: &[(&str, &str)] = &[
    ("nextn.eh_proj.weight", "mtp.fc.weight"),
    ("nextn.enorm.weight", "mtp.pre_fc_norm_embedding.weight"),
    ("nextn.hnorm.weight", "mtp.pre_fc_norm_hidden.weight"),
    ("nextn.shared_head_norm.weight", "mtp.norm.weight"),
];

/// The checkpoint's name of a part of a layer that this family alone has.
pub(in crate::model) fn part(name: &str) -> Option<&'static str> {
    PARTS.iter().find(|(gguf, _)| *gguf == name).map(|(_, own)| *own)
}

/// The checkpoint's name of a part that the draft module alone has.
pub(in crate::model) fn module(name: &str) -> Option<&'static str> {
    MODULE.iter().find(|(gguf, _)| *gguf == name).map(|(_, own)| *own)
}
