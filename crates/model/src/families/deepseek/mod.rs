//! DeepSeek-V3's layout, also used by GLM-4.7-Flash: latent attention, dense layers and then layers of experts, and a
//! stack of draft modules of its own.

mod gguf;
mod keys;
mod plan;

use crate::ModelError;
use crate::drafters::core::nextn_plans;
use crate::files::{ConfigJson, Folder, Layout, block_part, expert_part, part_name};
use crate::interfaces::{Names, NoSharing, OwnModules, Planned, PlannedFamily};
use crate::nn::{Conventions, Ends, Extras, HfKeys, PairOrder, TransformerConfig, refuse_biases};
use crate::plan::PlanFiles;

use self::keys::{Latent, LatentKeys};

/// DeepSeek-V3, R1 and V3.1: latent attention and experts. GGUF files of GLM-4.7-Flash and Kimi K2 have the same
/// architecture.
pub static DEEPSEEK_V3: PlannedFamily = PlannedFamily {
    names: Names { title: "deepseek_v3", gguf: &["deepseek2"], json: &["deepseek_v3"] },
    json: |json, folder| from_json(("deepseek_v3", None), json, folder),
    gguf: gguf::planned,
    tensors: tensor_name,
};

/// GLM-4.7-Flash.
pub static GLM4_MOE_LITE: PlannedFamily = PlannedFamily {
    names: Names { title: "glm4_moe_lite", gguf: &[], json: &["glm4_moe_lite"] },
    json: |json, folder| from_json(("glm4_moe_lite", Some(1)), json, folder),
    gguf: gguf::planned,
    tensors: tensor_name,
};

const fn conventions(name: &'static str) -> Conventions {
    Conventions { name, qk_norm: false, qkv_bias: false, gguf_pairs: PairOrder::Interleaved }
}

/// Reads `config.json` of the family of this name, which has so many dense layers if no key states it.
fn from_json(
    (name, usual_dense_layers): (&'static str, Option<usize>),
    json: &ConfigJson,
    folder: Option<&Folder>,
) -> Result<Planned, ModelError> {
    let conventions = conventions(name);
    refuse_biases(folder, &conventions, None)?;
    let own = LatentKeys::from_json(json.keys())?;
    let keys = json.read::<HfKeys>()?;
    let latent = own.latent(usual_dense_layers, (keys.layers()?, keys.heads()?), keys.sharper()?)?;
    let head_dim = Some(latent.attention.plain + latent.attention.rotary);
    let extras = Extras { head_dim, mscale: true, own_heads: true, ..Extras::default() };
    let transformer = keys.transformer(&conventions, Ends::of(json, folder), extras)?;
    Ok(planned(transformer, latent, PlanFiles::Checkpoint(folder)))
}

/// Of the transformer's sizes, `kv_heads` is `heads`, and `head_dim` the width of a query.
fn planned(transformer: TransformerConfig, latent: Latent, files: PlanFiles<'_>) -> Planned {
    let plan = plan::plan(&transformer, &latent, files);
    let family = match transformer.conventions.name {
        "glm4_moe_lite" => "a glm4_moe_lite",
        "deepseek2" => "a deepseek2",
        _ => "a deepseek_v3",
    };
    let no_sharing = NoSharing {
        family,
        instead_of_head: "start without --draft-model, and its own modules draft",
        instead_of_module: "brings its own, so start without --mtp",
    };
    let own = OwnModules::new(move |source, of| {
        nextn_plans(source, of, |block| plan::layer(&of.transformer, &latent, block, PlanFiles::of(source)))
    });
    Planned { own: Some(own), no_sharing: Some(no_sharing), ..Planned::new(transformer, plan) }
}

/// The checkpoint's name of a tensor, by that in GGUF files; a draft module counts as one more layer there too.
fn tensor_name(layout: &Layout, name: &str) -> Option<String> {
    let (layer, part) = block_part(name)?;
    self::part(part).map(|own| format!("{}layers.{layer}.{own}", layout.prefix))
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
fn part(name: &str) -> Option<String> {
    part_name(PARTS, name).or_else(|| expert_part(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experts_have_numbers() {
        assert_eq!(part("ffn_up.17.weight").as_deref(), Some("mlp.experts.17.up_proj.weight"));
        assert_eq!(part("ffn_up.weight").as_deref(), Some("mlp.up_proj.weight"));
        assert_eq!(part("ffn_up.x.weight"), None);
        assert_eq!(part("attn_k.1.weight"), None);
    }
}
