//! Tensor names of Gemma 4: GGUF's, by which the program requests tensors, and the checkpoint's.

use crate::files::{Layout, NORMED_TWICE, block_part, part_name, renamed};

/// The table of embeddings for each layer.
pub(crate) const TABLE: &str = "per_layer_token_embd.weight";

/// Name of a tensor outside layers, and the checkpoint's.
const WHOLE: &[(&str, &str)] = &[
    (TABLE, "embed_tokens_per_layer.weight"),
    ("per_layer_model_proj.weight", "per_layer_model_projection.weight"),
    ("per_layer_proj_norm.weight", "per_layer_projection_norm.weight"),
];

/// Parts that only this family has.
const PARTS: &[(&str, &str)] = &[
    ("inp_gate", "per_layer_input_gate"),
    ("proj", "per_layer_projection"),
    ("post_norm", "post_per_layer_input_norm"),
    ("layer_output_scale.weight", "layer_scalar"),
    ("ffn_gate_inp", "router.proj"),
    ("ffn_gate_inp.scale", "router.scale"),
    ("ffn_down_exps.scale", "router.per_expert_scale"),
    ("ffn_gate_up_exps.weight", "experts.gate_up_proj"),
    ("ffn_down_exps.weight", "experts.down_proj"),
    ("pre_ffw_norm_2", "pre_feedforward_layernorm_2"),
    ("post_ffw_norm_1", "post_feedforward_layernorm_1"),
    ("post_ffw_norm_2", "post_feedforward_layernorm_2"),
];

/// The checkpoint's name of a tensor.
pub(super) fn tensor_name(layout: &Layout, name: &str) -> Option<String> {
    if let Some(own) = renamed(WHOLE, name) {
        return Some(format!("{}{own}", layout.prefix));
    }
    let (layer, part) = block_part(name)?;
    self::part(part).map(|own| format!("{}layers.{layer}.{own}", layout.prefix))
}

/// The checkpoint's name of a part of a layer.
pub(super) fn part(name: &str) -> Option<String> {
    part_name(&[PARTS, NORMED_TWICE].concat(), name)
}
