//! Qwen3.5 (3.6 and 3.8 alike), with experts and without, and Qwen3-Next: layers of Gated DeltaNet between layers of gated
//! attention, zero-centred norms, partly rotated heads, and a draft module of its own.

mod keys;
mod plan;

use crate::ModelError;
use crate::drafters::core::OwnTensors;
use crate::files::{ConfigJson, Folder, Layout, ModelFiles, block_part, expert_part, part_name, renamed};
use crate::interfaces::{Names, NoSharing, OwnModules, Planned, PlannedFamily};
use crate::nn::{Conventions, Ends, Extras, GgufKeys, HfKeys, PairOrder, TransformerConfig, refuse_biases};
use crate::plan::{DraftPlan, HeadOrder, PlanFiles};
use draftscope_protocol::{MtpSpec, NormForm};

use self::keys::{Hybrid, HybridKeys};

/// What tells these families apart.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    /// Order of heads in the linear layers of GGUF files.
    gguf_order: HeadOrder,
    /// Whether feed-forward layers have experts.
    experts: bool,
}

const DENSE: Kind = Kind { name: "qwen35", gguf_order: HeadOrder::Tiled, experts: false };
const MOE: Kind = Kind { name: "qwen35moe", experts: true, ..DENSE };
const NEXT: Kind = Kind { name: "qwen3next", gguf_order: HeadOrder::Grouped, experts: true };

/// Qwen3.5 (3.6 and 3.8 alike) without experts.
pub static QWEN35: PlannedFamily = PlannedFamily {
    names: Names { title: "qwen3.5", gguf: &["qwen35"], json: &["qwen35", "qwen3_5", "qwen3_5_text"] },
    json: |json, folder| from_json(DENSE, json, folder),
    gguf: |keys| from_gguf(DENSE, &keys),
    tensors: tensor_name,
};

/// Qwen3.5 (3.6 and 3.8 alike) with experts.
pub static QWEN35_MOE: PlannedFamily = PlannedFamily {
    names: Names { title: "qwen3.5-moe", gguf: &["qwen35moe"], json: &["qwen3_5_moe", "qwen3_5_moe_text"] },
    json: |json, folder| from_json(MOE, json, folder),
    gguf: |keys| from_gguf(MOE, &keys),
    tensors: tensor_name,
};

/// Qwen3-Next and Qwen3-Coder-Next.
pub static QWEN3_NEXT: PlannedFamily = PlannedFamily {
    names: Names { title: "qwen3-next", gguf: &["qwen3next"], json: &["qwen3_next"] },
    json: |json, folder| from_json(NEXT, json, folder),
    gguf: |keys| from_gguf(NEXT, &keys),
    tensors: tensor_name,
};

impl Kind {
    fn conventions(self) -> Conventions {
        Conventions { name: self.name, qk_norm: true, qkv_bias: false, gguf_pairs: PairOrder::HalfSplit }
    }
}

fn from_json(kind: Kind, json: &ConfigJson, folder: Option<&Folder>) -> Result<Planned, ModelError> {
    refuse_biases(folder, &kind.conventions(), None)?;
    let own = HybridKeys::from_json(json.keys())?;
    // where every layer has experts, files need not state the width of other layers
    let width = json.keys().get("moe_intermediate_size").filter(|_| kind.experts);
    let json = width.map_or(json.clone(), |width| json.clone().with_defaults(&[("intermediate_size", width.clone())]));
    let keys = json.read::<HfKeys>()?;
    let extras = Extras { layer_types: true, partial_rotary: true, ..Extras::default() };
    let transformer = keys.transformer(&kind.conventions(), Ends::of(&json, folder), extras)?;
    let hybrid = own.hybrid((transformer.layers, transformer.head_dim), kind.experts)?;
    Ok(planned(transformer, hybrid, PlanFiles::Checkpoint(folder)))
}

fn from_gguf(kind: Kind, keys: &GgufKeys<'_>) -> Result<Planned, ModelError> {
    let hybrid = Hybrid::from_gguf(keys, kind.gguf_order, kind.experts)?;
    let transformer = keys.with_experts(&kind.conventions(), Some(hybrid.rotary))?;
    if !kind.experts {
        keys.refuse_experts()?;
    }
    Ok(planned(transformer, hybrid, PlanFiles::Gguf(keys.gguf)))
}

fn planned(transformer: TransformerConfig, hybrid: Hybrid, files: PlanFiles<'_>) -> Planned {
    let no_sharing = NoSharing {
        family: if transformer.conventions.name == NEXT.name { "a Qwen3-Next" } else { "a Qwen3.5" },
        instead_of_head: "start without --draft-model, and its own module drafts",
        instead_of_module: "brings its own, so start without --mtp",
    };
    let plan = plan::plan(&transformer, &hybrid, files);
    Planned {
        own: Some(OwnModules::new(move |source, of| module(source, of, &hybrid).map(|module| vec![module]))),
        no_sharing: Some(no_sharing),
        without_modules: Some("none of its own"),
        ..Planned::new(transformer, plan)
    }
}

/// The draft module of a model's files: `mtp.*` of a checkpoint, `nextn` tensors of a GGUF file. Its layer attends;
/// embedding and output head are the target's. It is found by its tensors, never by the keys, since many files announce one
/// that is missing.
///
/// # Errors
/// If there is none, or one with an embedding or a head of its own.
fn module(source: &ModelFiles, of: &Planned, hybrid: &Hybrid) -> Result<DraftPlan, ModelError> {
    let (config, files) = (&of.transformer, PlanFiles::of(source));
    let own = OwnTensors { source, config };
    if !own.has(0, "eh_proj") {
        return Err(ModelError::Unsupported(match hybrid.announces_mtp {
            true => format!("{} announces an MTP module and holds no tensor of it", source.file_name()),
            false => format!("{} brings no MTP module", source.file_name()),
        }));
    }
    if own.has(0, "embed_tokens") || own.has(0, "shared_head_head") {
        return Err(ModelError::Unsupported(
            "the draft module brings an embedding or a head of its own, which is not supported".into(),
        ));
    }
    let norm = if source.is_checkpoint() { NormForm::OnePlus } else { NormForm::Weight };
    let layer = plan::layer(config, hybrid, config.layers, files);
    Ok(own.plan(0, (layer, plan::angles(config, hybrid)), MtpSpec { norm, ..MtpSpec::default() }))
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
fn tensor_name(layout: &Layout, name: &str) -> Option<String> {
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
