//! Tensor names: those of GGUF files, which the program uses, and those of checkpoints.

/// How a checkpoint names its tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Prefix of `layers.0.…`.
    pub prefix: &'static str,
    /// Transformer blocks; a draft module's block counts as one more.
    pub layers: usize,
}

/// The checkpoint's name of a tensor, by its GGUF name; `None` if the family has no such tensor. The function is not
/// called for embedding, last norm and head, whose names are the same in all families.
pub type TensorNames = fn(&Layout, &str) -> Option<String>;

/// Number of the block and the rest of the name: `blk.3.attn_q.weight` is 3 and `attn_q.weight`.
#[must_use]
pub fn block_part(name: &str) -> Option<(usize, &str)> {
    let (layer, part) = name.strip_prefix("blk.")?.split_once('.')?;
    Some((layer.parse().ok()?, part))
}

/// Parts of a Llama block: the GGUF name and the checkpoint's name.
const PARTS: &[(&str, &str)] = &[
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

/// The checkpoint's name of a part of a Llama block, without `.weight`.
#[must_use]
pub fn llama_part(part: &str) -> Option<&'static str> {
    PARTS.iter().find(|(gguf, _)| *gguf == part).map(|(_, own)| *own)
}
