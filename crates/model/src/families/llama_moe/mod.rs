//! Qwen3 with experts and GLM-4.5 (4.6 and 4.7 alike): blocks of the Llama kind whose feed-forward parts are experts.
//! GLM-4.5 rotates a part of each head, begins with dense layers, and brings a draft module with experts.

mod keys;
mod plan;

use crate::ModelError;
use crate::drafters::core::nextn_plans;
use crate::files::config_json::contradiction;
use crate::files::{ConfigJson, Folder, Layout, block_part, expert_part, part_name};
use crate::interfaces::{Names, OwnModules, Planned, PlannedFamily};
use crate::nn::{Conventions, Ends, Extras, GgufKeys, HfKeys, PairOrder, TransformerConfig, refuse_biases};
use crate::plan::PlanFiles;

use self::keys::{Own, experts_in};
use self::plan::Shape;

const CONVENTIONS: Conventions =
    Conventions { name: "qwen3moe", qk_norm: true, qkv_bias: false, gguf_pairs: PairOrder::HalfSplit };
const GLM: Conventions = Conventions { name: "glm4moe", ..CONVENTIONS };

/// Qwen3 with experts, such as Qwen3-30B-A3B.
pub static QWEN3_MOE: PlannedFamily = PlannedFamily {
    names: Names { title: "qwen3-moe", gguf: &["qwen3moe"], json: &["qwen3_moe"] },
    json: |json, folder| from_json(CONVENTIONS, json, folder),
    gguf: |keys| from_gguf(CONVENTIONS, keys),
    tensors: tensor_name,
};

/// GLM-4.5, 4.6 and 4.7 (not Flash).
pub static GLM4_MOE: PlannedFamily = PlannedFamily {
    names: Names { title: "glm4-moe", gguf: &["glm4moe"], json: &["glm4_moe"] },
    json: |json, folder| from_json(GLM, json, folder),
    gguf: |keys| from_gguf(GLM, keys),
    tensors: tensor_name,
};

/// Whether these are the conventions of GLM-4.5, whose experts are in groups.
fn is_glm(conventions: Conventions) -> bool {
    conventions.name == GLM.name
}

fn from_json(conventions: Conventions, json: &ConfigJson, folder: Option<&Folder>) -> Result<Planned, ModelError> {
    let keys = json.read::<HfKeys>()?;
    let own = match is_glm(conventions) {
        true => Own::of_glm4(json.keys(), keys.layers()?)?,
        false => Own::of_qwen3(json.keys())?,
    };
    let conventions = Conventions { qk_norm: own.qk_norm, qkv_bias: own.qkv_bias, ..conventions };
    refuse_biases(folder, &conventions, None)?;
    let extras = Extras { partial_rotary: true, ..Extras::default() };
    let transformer = keys.transformer(&conventions, Ends::of(json, folder), extras)?;
    let rotary = (transformer.head_dim as f64 * own.rotary) as usize;
    let shape = Shape { rotary, experts: own.experts, dense_layers: own.dense_layers };
    planned(transformer, (shape, own.modules), PlanFiles::Checkpoint(folder))
}

fn from_gguf(conventions: Conventions, keys: GgufKeys<'_>) -> Result<Planned, ModelError> {
    let gguf = keys.gguf;
    let rotary = keys.size_or("rope.dimension_count", 1 << 12, keys.head_dim()?)?;
    let conventions = Conventions {
        qk_norm: gguf.has_tensor("blk.0.attn_q_norm.weight"),
        qkv_bias: gguf.has_tensor("blk.0.attn_q.bias"),
        ..conventions
    };
    let (experts, dense_layers) = experts_in(&keys, is_glm(conventions))?;
    let transformer = keys.with_experts(&conventions, Some(rotary))?;
    let announced = gguf.number(&keys.key("nextn_predict_layers")).unwrap_or(0);
    let shape = Shape { rotary, experts, dense_layers };
    planned(transformer, (shape, usize::try_from(announced).unwrap_or(usize::MAX)), PlanFiles::Gguf(gguf))
}

/// A model that announces so many draft modules.
fn planned(
    transformer: TransformerConfig,
    (shape, modules): (Shape, usize),
    files: PlanFiles<'_>,
) -> Result<Planned, ModelError> {
    let (head, rotary) = (transformer.head_dim, shape.rotary);
    if rotary == 0 || !rotary.is_multiple_of(2) || rotary > head {
        return contradiction(format!("{rotary} values of a head of {head} cannot be rotated in pairs"));
    }
    let plan = plan::plan(&transformer, (&shape, modules), files);
    let own = OwnModules::new(move |source, of| {
        nextn_plans(source, of, |block| plan::layer(&of.transformer, &shape, block, PlanFiles::of(source)))
    });
    Ok(Planned { own: is_glm(transformer.conventions).then_some(own), ..Planned::new(transformer, plan) })
}

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
fn tensor_name(layout: &Layout, name: &str) -> Option<String> {
    let (layer, part) = block_part(name)?;
    let own = part_name(PARTS, part).or_else(|| expert_part(part))?;
    Some(format!("{}layers.{layer}.{own}", layout.prefix))
}
