//! The family Gemma 3: names, sizes, tensor names.

use serde_json::{Map, json};

use crate::model::ModelError;
use crate::model::families::gemma3::config::{Gemma3Config, Keys, Layers};
use crate::model::families::gemma3::load;
use crate::model::files::config_json::ConfigJson;
use crate::model::files::folder::Folder;
use crate::model::files::gguf::GgufFile;
use crate::model::files::tensor_names::{Layout, TensorNames, block_part};
use crate::model::interfaces::{
    Backend, Description, Family, FamilyConfig, LoadContext, LoadedTarget, Names, Progress,
};
use crate::model::nn::config::{Conventions, TransformerConfig};
use crate::model::nn::gguf_keys::GgufKeys;
use crate::model::nn::hf_keys::{Ends, Extras, HfKeys, refuse_biases};
use crate::model::nn::rope::PairOrder;
use crate::model::shared_kv::Reach;

/// Gemma 3, the part that reads and writes text.
pub struct Gemma3Family;

const CONVENTIONS: Conventions =
    Conventions { name: "gemma3", qk_norm: true, qkv_bias: false, gguf_pairs: PairOrder::HalfSplit };

/// Part of a GGUF name, and of the checkpoint's.
const PARTS: [(&str, &str); 13] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("post_attention_norm", "post_attention_layernorm"),
    ("ffn_norm", "pre_feedforward_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];

impl Family for Gemma3Family {
    fn names(&self) -> Names {
        Names { title: "gemma3", gguf: &["gemma3"], json: &["gemma3", "gemma3_text"] }
    }

    fn read_json(&self, json: &ConfigJson, folder: Option<&Folder>) -> Result<Box<dyn FamilyConfig>, ModelError> {
        if let Some(folder) = folder {
            refuse_biases(folder, &CONVENTIONS, None)?;
        }
        let json = json.clone().with_defaults(&Keys::defaults());
        let (keys, own) = (json.read::<HfKeys>()?, Keys::from_json(&json)?);
        let layers = own.layers(keys.layers()?)?;
        let extras = Extras { rope: Some(own.sliding_rope()?), layer_types: true, ..Extras::default() };
        let transformer = keys.transformer(&CONVENTIONS, Ends::of(&json, folder), extras)?;
        Ok(Box::new(Gemma3Config { transformer, layers }))
    }

    fn read_gguf(&self, gguf: &GgufFile) -> Result<Box<dyn FamilyConfig>, ModelError> {
        let keys = GgufKeys { gguf, arch: CONVENTIONS.name };
        let transformer = keys.sizes(&CONVENTIONS, |_| Layers::sliding_rope_of_gguf(keys))?;
        keys.refuse_extras(&CONVENTIONS, (transformer.head_dim, transformer.head_dim))?;
        let layers = Layers::from_gguf(keys, &transformer)?;
        Ok(Box::new(Gemma3Config { transformer, layers }))
    }

    fn tensor_names(&self) -> TensorNames {
        tensor_name
    }

    // the model is lost without its first token
    fn always_begins(&self) -> bool {
        true
    }
}

fn tensor_name(layout: &Layout, name: &str) -> Option<String> {
    let (layer, part) = block_part(name)?;
    let (_, own) = PARTS.iter().find(|(gguf, _)| Some(*gguf) == part.strip_suffix(".weight"))?;
    Some(format!("{}layers.{layer}.{own}.weight", layout.prefix))
}

impl FamilyConfig for Gemma3Config {
    fn transformer(&self) -> &TransformerConfig {
        &self.transformer
    }

    fn describe(&self) -> Description {
        let count = |reach| self.layers.reach.iter().filter(|own| **own == reach).count();
        let (sliding, full, window) = (count(Reach::Sliding), count(Reach::Full), self.layers.window);
        let fields = json!({"sliding_layers": sliding, "window": window, "full_layers": full});
        Description {
            fields: Map::from_iter([("gemma3".to_owned(), fields)]),
            layers: vec![format!("layers   {sliding} sliding ({window} positions), {full} full")],
            ..Description::default()
        }
    }

    fn load(
        &self,
        context: &LoadContext<'_>,
        backend: Backend<'_>,
        progress: &mut Progress<'_>,
    ) -> Result<Box<dyn LoadedTarget>, ModelError> {
        load::target(self, context, &backend, progress)
    }
}
