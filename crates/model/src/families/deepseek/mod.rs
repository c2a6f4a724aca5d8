//! DeepSeek-V3's layout, also used by GLM-4.7-Flash: latent attention, dense layers and then layers of experts, and a
//! stack of draft modules of its own.

mod common;
mod gguf;
mod keys;
mod plan;

use crate::ModelError;
use crate::files::{ConfigJson, Folder};
use crate::interfaces::{Names, Planned, PlannedFamily};
use crate::nn::{Ends, Extras, HfKeys, refuse_biases};
use crate::plan::PlanFiles;

use self::keys::LatentKeys;
use common::{conventions, planned, tensor_name};

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

#[cfg(test)]
mod tests {
    use super::common::part;

    #[test]
    fn experts_have_numbers() {
        assert_eq!(part("ffn_up.17.weight").as_deref(), Some("mlp.experts.17.up_proj.weight"));
        assert_eq!(part("ffn_up.weight").as_deref(), Some("mlp.up_proj.weight"));
        assert_eq!(part("ffn_up.x.weight"), None);
        assert_eq!(part("attn_k.1.weight"), None);
    }
}
