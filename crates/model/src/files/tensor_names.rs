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
    renamed(PARTS, part)
}

/// The GGUF name of a part of a Llama block, by the checkpoint's; both without `.weight`.
#[must_use]
pub fn llama_name(part: &str) -> Option<&'static str> {
    PARTS.iter().find(|(_, own)| *own == part).map(|(name, _)| *name)
}

/// What stands beside a name in a table.
#[must_use]
pub fn renamed(table: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    table.iter().find(|(asked, _)| *asked == name).map(|(_, own)| *own)
}

/// The checkpoint's name of a part of a block, `.weight` included: as the family's `own` table has it, whose rows name
/// weights without `.weight` and other tensors in full, else as in blocks of the Llama kind.
#[must_use]
pub fn part_name(own: &[(&str, &'static str)], part: &str) -> Option<String> {
    if let Some(whole) = renamed(own, part) {
        return Some(whole.to_owned());
    }
    let part = part.strip_suffix(".weight")?;
    renamed(own, part).or_else(|| llama_part(part)).map(|own| format!("{own}.weight"))
}

/// The checkpoint's name of a tensor, for a family whose blocks are of the Llama kind but for its `own` table.
#[must_use]
pub fn block_name(layout: &Layout, own: &[(&str, &'static str)], name: &str) -> Option<String> {
    let (layer, part) = block_part(name)?;
    Some(format!("{}layers.{layer}.{}", layout.prefix, part_name(own, part)?))
}

/// The checkpoint's name of a matrix of an expert, whose number follows its part: `ffn_up.17.weight`.
#[must_use]
pub fn expert_part(part: &str) -> Option<String> {
    let (part, expert) = part.strip_suffix(".weight")?.rsplit_once('.')?;
    let own = match part {
        "ffn_gate" => "gate_proj",
        "ffn_up" => "up_proj",
        "ffn_down" => "down_proj",
        _ => return None,
    };
    expert.parse::<u16>().ok()?;
    Some(format!("mlp.experts.{expert}.{own}.weight"))
}

/// Parts of blocks that norm what attention and feed-forward layer read, and what they give.
pub const NORMED_TWICE: &[(&str, &str)] = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("ffn_norm", "pre_feedforward_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];
